CREATE TABLE "key_use" (
	"key_id" text NOT NULL,
	"day" date NOT NULL,
	"calls" integer DEFAULT 0 NOT NULL,
	"searches" integer DEFAULT 0 NOT NULL,
	CONSTRAINT "key_use_key_id_day_pk" PRIMARY KEY("key_id","day")
);
--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "monthly_calls" integer;--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "monthly_searches" integer;--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "counted_as" text;--> statement-breakpoint
CREATE INDEX "key_use_day" ON "key_use" USING btree ("day","key_id");