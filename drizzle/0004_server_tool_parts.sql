CREATE TABLE "server_tool_parts" (
	"server_id" text NOT NULL,
	"part" integer NOT NULL,
	"tools" jsonb NOT NULL,
	CONSTRAINT "server_tool_parts_server_id_part_pk" PRIMARY KEY("server_id","part")
);
--> statement-breakpoint
ALTER TABLE "server_tool_parts" ADD CONSTRAINT "server_tool_parts_server_id_servers_id_fk" FOREIGN KEY ("server_id") REFERENCES "public"."servers"("id") ON DELETE cascade ON UPDATE no action;