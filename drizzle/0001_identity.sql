CREATE TABLE "audit_log" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"at" timestamp with time zone DEFAULT now() NOT NULL,
	"tenant_id" text,
	"key_id" text,
	"user_id" text,
	"event" text NOT NULL,
	"outcome" text NOT NULL,
	"request_id" text,
	"ip" text,
	"meta" jsonb DEFAULT '{}'::jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth_sessions" (
	"id_hash" "bytea" PRIMARY KEY NOT NULL,
	"state_hash" "bytea" NOT NULL,
	"ticket_hash" "bytea",
	"result_hash" "bytea",
	"browser_hash" "bytea",
	"tenant_id" text NOT NULL,
	"user_id" text NOT NULL,
	"api_key_id" text NOT NULL,
	"provider" text NOT NULL,
	"scopes" text[] NOT NULL,
	"resource" text DEFAULT '' NOT NULL,
	"mode" text NOT NULL,
	"just_in_time" boolean DEFAULT false NOT NULL,
	"allow_account_change" boolean DEFAULT false NOT NULL,
	"return_url" text,
	"sealed" text,
	"status" text DEFAULT 'pending' NOT NULL,
	"error_code" text,
	"epoch" integer NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"claimed_at" timestamp with time zone,
	"finished_at" timestamp with time zone,
	"delivered_at" timestamp with time zone,
	"redeemed_at" timestamp with time zone,
	"connection_id" text,
	"family_id" text,
	"idempotency_hash" "bytea",
	"replay_sealed" text,
	"replay_until" timestamp with time zone,
	CONSTRAINT "auth_sessions_state" UNIQUE("state_hash"),
	CONSTRAINT "auth_sessions_ticket" UNIQUE("ticket_hash"),
	CONSTRAINT "auth_sessions_result" UNIQUE("result_hash"),
	CONSTRAINT "auth_sessions_status" CHECK ("auth_sessions"."status" in ('pending', 'claimed', 'confirm', 'complete', 'error')),
	CONSTRAINT "auth_sessions_mode" CHECK ("auth_sessions"."mode" in ('direct', 'page', 'caller')),
	CONSTRAINT "auth_sessions_finished" CHECK (("auth_sessions"."status" in ('complete', 'error')) = ("auth_sessions"."finished_at" is not null)),
	CONSTRAINT "auth_sessions_error" CHECK (("auth_sessions"."status" = 'error') = ("auth_sessions"."error_code" is not null)),
	CONSTRAINT "auth_sessions_delivered" CHECK ("auth_sessions"."delivered_at" is null or "auth_sessions"."finished_at" is not null),
	CONSTRAINT "auth_sessions_secrets_gone" CHECK ("auth_sessions"."finished_at" is null or "auth_sessions"."sealed" is null)
);
--> statement-breakpoint
CREATE TABLE "connections" (
	"id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"user_id" text NOT NULL,
	"provider" text NOT NULL,
	"resource" text DEFAULT '' NOT NULL,
	"subject" text NOT NULL,
	"account" text,
	"scopes" text[] NOT NULL,
	"status" text DEFAULT 'active' NOT NULL,
	"sealed" text,
	"has_refresh_token" boolean NOT NULL,
	"access_expires_at" timestamp with time zone,
	"version" integer DEFAULT 1 NOT NULL,
	"lease_id" text,
	"lease_until" timestamp with time zone,
	"failed_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	"last_used_at" timestamp with time zone,
	CONSTRAINT "connections_one" UNIQUE("user_id","provider","resource"),
	CONSTRAINT "connections_status" CHECK ("connections"."status" in ('active', 'needs_reauth')),
	CONSTRAINT "connections_sealed" CHECK (("connections"."status" = 'active') = ("connections"."sealed" is not null)),
	CONSTRAINT "connections_lease" CHECK (("connections"."lease_id" is null) = ("connections"."lease_until" is null))
);
--> statement-breakpoint
CREATE TABLE "manage_links" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"user_id" text NOT NULL,
	"epoch" integer NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"used_at" timestamp with time zone,
	"browser_hash" "bytea",
	CONSTRAINT "manage_links_browser" UNIQUE("browser_hash"),
	CONSTRAINT "manage_links_used" CHECK (("manage_links"."used_at" is null) = ("manage_links"."browser_hash" is null))
);
--> statement-breakpoint
CREATE TABLE "refresh_tokens" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"family_id" text NOT NULL,
	"parent_hash" "bytea",
	"epoch" integer NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"used_at" timestamp with time zone,
	"idempotency_hash" "bytea",
	"replay_sealed" text,
	"replay_until" timestamp with time zone,
	CONSTRAINT "refresh_tokens_one_successor" UNIQUE("parent_hash"),
	CONSTRAINT "refresh_tokens_hash_length" CHECK (octet_length("refresh_tokens"."hash") = 32),
	CONSTRAINT "refresh_tokens_replay" CHECK (("refresh_tokens"."replay_sealed" is null) = ("refresh_tokens"."replay_until" is null) and ("refresh_tokens"."replay_sealed" is null or ("refresh_tokens"."used_at" is not null and "refresh_tokens"."idempotency_hash" is not null)))
);
--> statement-breakpoint
CREATE TABLE "revocation_outbox" (
	"id" text PRIMARY KEY NOT NULL,
	"provider" text NOT NULL,
	"user_id" text NOT NULL,
	"subject" text NOT NULL,
	"sealed" text NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"next_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "signing_keys" (
	"kid" text PRIMARY KEY NOT NULL,
	"public_jwk" jsonb NOT NULL,
	"sealed" text,
	"state" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"retire_at" timestamp with time zone,
	CONSTRAINT "signing_keys_state" CHECK ("signing_keys"."state" in ('next', 'active', 'retired'))
);
--> statement-breakpoint
CREATE TABLE "token_families" (
	"id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"user_id" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"revoked_at" timestamp with time zone,
	"revoked_reason" text,
	CONSTRAINT "token_families_revoked" CHECK (("token_families"."revoked_at" is null) = ("token_families"."revoked_reason" is null))
);
--> statement-breakpoint
CREATE TABLE "users" (
	"id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"external_id" text NOT NULL,
	"token_epoch" integer DEFAULT 1 NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"last_seen_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "users_external_id" UNIQUE("tenant_id","external_id"),
	CONSTRAINT "users_tenant_id" UNIQUE("tenant_id","id"),
	CONSTRAINT "users_external_id_length" CHECK (octet_length("users"."external_id") between 1 and 1024),
	CONSTRAINT "users_token_epoch" CHECK ("users"."token_epoch" >= 1)
);
--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "user_id" text;--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "user_epoch" integer;--> statement-breakpoint
ALTER TABLE "tenants" ADD COLUMN "name" text;--> statement-breakpoint
ALTER TABLE "tenants" ADD COLUMN "sign_in_mode" text DEFAULT 'direct' NOT NULL;--> statement-breakpoint
ALTER TABLE "tenants" ADD COLUMN "return_urls" text[] DEFAULT '{}' NOT NULL;--> statement-breakpoint
ALTER TABLE "auth_sessions" ADD CONSTRAINT "auth_sessions_user" FOREIGN KEY ("tenant_id","user_id") REFERENCES "public"."users"("tenant_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "connections" ADD CONSTRAINT "connections_user" FOREIGN KEY ("tenant_id","user_id") REFERENCES "public"."users"("tenant_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "manage_links" ADD CONSTRAINT "manage_links_user" FOREIGN KEY ("tenant_id","user_id") REFERENCES "public"."users"("tenant_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "refresh_tokens" ADD CONSTRAINT "refresh_tokens_family_id_token_families_id_fk" FOREIGN KEY ("family_id") REFERENCES "public"."token_families"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "token_families" ADD CONSTRAINT "token_families_user" FOREIGN KEY ("tenant_id","user_id") REFERENCES "public"."users"("tenant_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "users" ADD CONSTRAINT "users_tenant_id_tenants_id_fk" FOREIGN KEY ("tenant_id") REFERENCES "public"."tenants"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "audit_log_at" ON "audit_log" USING btree ("at");--> statement-breakpoint
CREATE INDEX "audit_log_tenant" ON "audit_log" USING btree ("tenant_id","at");--> statement-breakpoint
CREATE INDEX "audit_log_user" ON "audit_log" USING btree ("user_id","at");--> statement-breakpoint
CREATE INDEX "auth_sessions_user" ON "auth_sessions" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "auth_sessions_open" ON "auth_sessions" USING btree ("user_id","provider") WHERE "auth_sessions"."finished_at" is null;--> statement-breakpoint
CREATE INDEX "auth_sessions_created_at" ON "auth_sessions" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "manage_links_user" ON "manage_links" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "manage_links_expires_at" ON "manage_links" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "refresh_tokens_family" ON "refresh_tokens" USING btree ("family_id");--> statement-breakpoint
CREATE INDEX "refresh_tokens_replay" ON "refresh_tokens" USING btree ("replay_until") WHERE "refresh_tokens"."replay_until" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "refresh_tokens_one_live" ON "refresh_tokens" USING btree ("family_id") WHERE "refresh_tokens"."used_at" is null;--> statement-breakpoint
CREATE INDEX "revocation_outbox_next_at" ON "revocation_outbox" USING btree ("provider","next_at");--> statement-breakpoint
CREATE UNIQUE INDEX "signing_keys_one_active" ON "signing_keys" USING btree ("state") WHERE "signing_keys"."state" = 'active';--> statement-breakpoint
CREATE INDEX "token_families_user" ON "token_families" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "token_families_expires_at" ON "token_families" USING btree ("expires_at");--> statement-breakpoint
ALTER TABLE "api_keys" ADD CONSTRAINT "api_keys_user" FOREIGN KEY ("tenant_id","user_id") REFERENCES "public"."users"("tenant_id","id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "api_keys_user" ON "api_keys" USING btree ("user_id");--> statement-breakpoint
ALTER TABLE "api_keys" ADD CONSTRAINT "api_keys_user_epoch" CHECK (("api_keys"."user_id" is null) = ("api_keys"."user_epoch" is null));--> statement-breakpoint
ALTER TABLE "tenants" ADD CONSTRAINT "tenants_sign_in_mode" CHECK ("tenants"."sign_in_mode" in ('direct', 'page', 'caller'));