CREATE TABLE "console_sessions" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"is_link" boolean NOT NULL,
	"key_id" text NOT NULL,
	"key_mark" "bytea",
	"role" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"idle_until" timestamp with time zone NOT NULL,
	CONSTRAINT "console_sessions_hash_length" CHECK (octet_length("console_sessions"."hash") = 32),
	CONSTRAINT "console_sessions_role" CHECK ("console_sessions"."role" in ('admin', 'admin_read'))
);
--> statement-breakpoint
ALTER TABLE "servers" ADD COLUMN "examples" jsonb;--> statement-breakpoint
ALTER TABLE "oauth_clients" ADD COLUMN "by_operator" boolean DEFAULT false NOT NULL;--> statement-breakpoint
CREATE INDEX "console_sessions_expires_at" ON "console_sessions" USING btree ("expires_at");