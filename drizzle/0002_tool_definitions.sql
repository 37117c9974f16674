CREATE TABLE "tool_definitions" (
	"server_id" text NOT NULL,
	"tool" text NOT NULL,
	"hash" text NOT NULL,
	"first_seen_at" timestamp with time zone NOT NULL,
	"changed" boolean NOT NULL,
	CONSTRAINT "tool_definitions_server_id_tool_pk" PRIMARY KEY("server_id","tool")
);
--> statement-breakpoint
ALTER TABLE "servers" ADD COLUMN "tools_listed_at" timestamp with time zone;