CREATE TABLE "webhook_outbox" (
	"id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"type" text NOT NULL,
	"body" text NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"failure" text,
	"next_at" timestamp with time zone DEFAULT now() NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "webhook_secrets" (
	"id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"sealed" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "webhooks" (
	"tenant_id" text PRIMARY KEY NOT NULL,
	"url" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"disabled_at" timestamp with time zone
);
--> statement-breakpoint
ALTER TABLE "webhook_outbox" ADD CONSTRAINT "webhook_outbox_tenant_id_webhooks_tenant_id_fk" FOREIGN KEY ("tenant_id") REFERENCES "public"."webhooks"("tenant_id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_secrets" ADD CONSTRAINT "webhook_secrets_tenant_id_webhooks_tenant_id_fk" FOREIGN KEY ("tenant_id") REFERENCES "public"."webhooks"("tenant_id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhooks" ADD CONSTRAINT "webhooks_tenant_id_tenants_id_fk" FOREIGN KEY ("tenant_id") REFERENCES "public"."tenants"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "webhook_outbox_next_at" ON "webhook_outbox" USING btree ("tenant_id","next_at");--> statement-breakpoint
CREATE INDEX "webhook_outbox_created_at" ON "webhook_outbox" USING btree ("tenant_id","created_at");--> statement-breakpoint
CREATE INDEX "webhook_secrets_tenant" ON "webhook_secrets" USING btree ("tenant_id");--> statement-breakpoint
CREATE UNIQUE INDEX "webhook_secrets_one_current" ON "webhook_secrets" USING btree ("tenant_id") WHERE "webhook_secrets"."expires_at" is null;