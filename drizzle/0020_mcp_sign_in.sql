CREATE TABLE "authorization_records" (
	"id_hash" "bytea" PRIMARY KEY NOT NULL,
	"kind" text NOT NULL,
	"grant_id" text,
	"uid_hash" "bytea",
	"sealed" text NOT NULL,
	"used_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "authorization_records_hash_length" CHECK (octet_length("authorization_records"."id_hash") = 32)
);
--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "client_id" text;--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "resource" text;--> statement-breakpoint
ALTER TABLE "tenants" ADD COLUMN "page_domain" text;--> statement-breakpoint
ALTER TABLE "authorization_records" ADD CONSTRAINT "authorization_records_grant_id_api_keys_id_fk" FOREIGN KEY ("grant_id") REFERENCES "public"."api_keys"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "authorization_records_grant" ON "authorization_records" USING btree ("grant_id");--> statement-breakpoint
CREATE INDEX "authorization_records_uid" ON "authorization_records" USING btree ("uid_hash");--> statement-breakpoint
CREATE INDEX "authorization_records_expires_at" ON "authorization_records" USING btree ("expires_at");--> statement-breakpoint
ALTER TABLE "api_keys" ADD CONSTRAINT "api_keys_client" CHECK (("api_keys"."client_id" is null) = ("api_keys"."resource" is null) and ("api_keys"."client_id" is null or "api_keys"."user_id" is not null));--> statement-breakpoint
ALTER TABLE "tenants" ADD CONSTRAINT "tenants_page_domain" CHECK ("tenants"."page_domain" is null or "tenants"."page_claim" = 'email');