CREATE TABLE "search_outcomes" (
	"query_log_id" text NOT NULL,
	"server_id" text NOT NULL,
	"tool" text NOT NULL,
	"source" text NOT NULL,
	"outcome" text NOT NULL,
	"tenant_id" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "search_outcomes_query_log_id_server_id_tool_source_pk" PRIMARY KEY("query_log_id","server_id","tool","source")
);
--> statement-breakpoint
ALTER TABLE "server_usage" ADD COLUMN "helpful" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "server_usage" ADD COLUMN "unhelpful" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX "search_outcomes_created_at" ON "search_outcomes" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "server_usage_day" ON "server_usage" USING btree ("day");