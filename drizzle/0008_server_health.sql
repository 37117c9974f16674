CREATE TABLE "server_health" (
	"server_id" text PRIMARY KEY NOT NULL,
	"remote_url" text NOT NULL,
	"state" text NOT NULL,
	"latency_ms" integer,
	"checked_at" timestamp with time zone NOT NULL,
	"last_ok_at" timestamp with time zone,
	"failures" integer NOT NULL,
	"dead_since" timestamp with time zone,
	"written_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "server_health_state" CHECK ("server_health"."state" in ('ok', 'needs_sign_in', 'not_mcp', 'unreachable'))
);
--> statement-breakpoint
ALTER TABLE "servers" ADD COLUMN "unanswered" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "server_health" ADD CONSTRAINT "server_health_server_id_servers_id_fk" FOREIGN KEY ("server_id") REFERENCES "public"."servers"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "server_health_written_at" ON "server_health" USING btree ("written_at");--> statement-breakpoint
-- Other processes look for what has changed when they are told of the catalogue, too (0007).
CREATE TRIGGER "server_health_changed" AFTER INSERT OR UPDATE ON "server_health"
  FOR EACH STATEMENT EXECUTE FUNCTION "switchboard_catalogue_changed"();--> statement-breakpoint
-- No write but that which sets the mark leaves it. A program from before it, as runs after a rollback, does not know of it: what
-- that has deactivated or made active is not for probing to bring back.
CREATE FUNCTION "switchboard_unanswered_ended"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW."unanswered" := false;
  RETURN NEW;
END $$;--> statement-breakpoint
CREATE TRIGGER "servers_unanswered" BEFORE UPDATE ON "servers"
  FOR EACH ROW WHEN (OLD."unanswered" AND NEW."unanswered" AND NEW."updated_at" IS DISTINCT FROM OLD."updated_at")
  EXECUTE FUNCTION "switchboard_unanswered_ended"();
