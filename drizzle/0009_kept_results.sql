-- A cache: without a write-ahead log, which the embedded database would keep until its next start. A database that has crashed
-- empties it.
CREATE UNLOGGED TABLE "kept_result_parts" (
	"handle" text NOT NULL,
	"part" integer NOT NULL,
	"sealed" text NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "kept_result_parts_handle_part_pk" PRIMARY KEY("handle","part")
);
--> statement-breakpoint
CREATE UNLOGGED TABLE "kept_results" (
	"handle" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"key_id" text NOT NULL,
	"user_id" text NOT NULL,
	"bytes" integer NOT NULL,
	"total_chars" integer,
	"expires_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE INDEX "kept_result_parts_expires_at" ON "kept_result_parts" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "kept_results_key" ON "kept_results" USING btree ("key_id");--> statement-breakpoint
CREATE INDEX "kept_results_expires_at" ON "kept_results" USING btree ("expires_at");