ALTER TABLE "auth_sessions" ADD COLUMN "sign_in" integer;--> statement-breakpoint
ALTER TABLE "connections" ADD COLUMN "sign_in" integer DEFAULT 1 NOT NULL;--> statement-breakpoint
ALTER TABLE "connections" ADD COLUMN "rejected_at" timestamp with time zone;