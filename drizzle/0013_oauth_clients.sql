CREATE TABLE "oauth_clients" (
	"id" text PRIMARY KEY NOT NULL,
	"issuer" text NOT NULL,
	"redirect_uri" text NOT NULL,
	"client_id" text,
	"sealed" text,
	"secret_expires_at" timestamp with time zone,
	"lease_id" text,
	"lease_until" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"retired_at" timestamp with time zone,
	CONSTRAINT "oauth_clients_sealed" CHECK (("oauth_clients"."client_id" is null) = ("oauth_clients"."sealed" is null)),
	CONSTRAINT "oauth_clients_lease" CHECK (("oauth_clients"."client_id" is null) = ("oauth_clients"."lease_id" is not null))
);
--> statement-breakpoint
ALTER TABLE "connections" ADD COLUMN "issuer" text;--> statement-breakpoint
ALTER TABLE "connections" ADD COLUMN "client_row" text;--> statement-breakpoint
CREATE UNIQUE INDEX "oauth_clients_current" ON "oauth_clients" USING btree ("issuer","redirect_uri") WHERE "oauth_clients"."retired_at" is null;