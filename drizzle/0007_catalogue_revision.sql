ALTER TABLE "servers" ADD COLUMN "revision" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX "servers_revision" ON "servers" USING btree ("revision");--> statement-breakpoint
-- By triggers, so that a program from before this one, and an import into the database, are seen too.
CREATE FUNCTION "switchboard_server_written"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW."revision" := pg_current_xact_id()::text::bigint;
  RETURN NEW;
END $$;--> statement-breakpoint
CREATE TRIGGER "servers_revision" BEFORE INSERT OR UPDATE ON "servers"
  FOR EACH ROW EXECUTE FUNCTION "switchboard_server_written"();--> statement-breakpoint
CREATE FUNCTION "switchboard_server_part_written"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE "servers" SET "revision" = 0
    WHERE "id" = coalesce(NEW."server_id", OLD."server_id")
      AND "revision" <> pg_current_xact_id()::text::bigint;
  RETURN NULL;
END $$;--> statement-breakpoint
CREATE TRIGGER "server_tool_parts_revision" AFTER INSERT OR UPDATE OR DELETE ON "server_tool_parts"
  FOR EACH ROW EXECUTE FUNCTION "switchboard_server_part_written"();--> statement-breakpoint
CREATE FUNCTION "switchboard_catalogue_changed"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('switchboard_catalogue', '');
  RETURN NULL;
END $$;--> statement-breakpoint
CREATE TRIGGER "servers_changed" AFTER INSERT OR UPDATE ON "servers"
  FOR EACH STATEMENT EXECUTE FUNCTION "switchboard_catalogue_changed"();
