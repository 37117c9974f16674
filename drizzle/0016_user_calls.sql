CREATE TABLE "user_calls" (
	"tenant_id" text NOT NULL,
	"user_id" text NOT NULL,
	"minute" timestamp with time zone NOT NULL,
	"server_id" text NOT NULL,
	"tool" text NOT NULL,
	"key_id" text NOT NULL,
	"outcome" text NOT NULL,
	"times" integer NOT NULL,
	"last_at" timestamp with time zone NOT NULL,
	CONSTRAINT "user_calls_one" PRIMARY KEY("user_id","minute","server_id","tool","key_id","outcome"),
	CONSTRAINT "user_calls_outcome" CHECK ("user_calls"."outcome" in ('worked', 'answered', 'failed', 'refused', 'not_connected', 'stopped')),
	CONSTRAINT "user_calls_times" CHECK ("user_calls"."times" >= 1)
);
--> statement-breakpoint
ALTER TABLE "connections" ADD COLUMN "asked_by" text;--> statement-breakpoint
ALTER TABLE "user_calls" ADD CONSTRAINT "user_calls_user" FOREIGN KEY ("tenant_id","user_id") REFERENCES "public"."users"("tenant_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "user_calls_minute" ON "user_calls" USING btree ("minute");