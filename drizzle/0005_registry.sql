ALTER TABLE "servers" ADD COLUMN "registry" jsonb;--> statement-breakpoint
CREATE INDEX "servers_registry_name" ON "servers" USING btree (("registry" ->> 'name'));