CREATE TABLE "api_keys" (
	"id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"name" text NOT NULL,
	"hash" "bytea" NOT NULL,
	"scopes" text[] NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone,
	"revoked_at" timestamp with time zone,
	"last_used_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "embeddings" (
	"embedder" text NOT NULL,
	"text_hash" "bytea" NOT NULL,
	"vector" "bytea" NOT NULL,
	CONSTRAINT "embeddings_embedder_text_hash_pk" PRIMARY KEY("embedder","text_hash")
);
--> statement-breakpoint
CREATE TABLE "query_log" (
	"id" text PRIMARY KEY NOT NULL,
	"tenant_id" text NOT NULL,
	"key_id" text NOT NULL,
	"query" text NOT NULL,
	"server_ids" jsonb NOT NULL,
	"latency_ms" double precision NOT NULL,
	"cache_hit" boolean NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "server_usage" (
	"server_id" text NOT NULL,
	"tenant_id" text NOT NULL,
	"day" date NOT NULL,
	"successes" integer DEFAULT 0 NOT NULL,
	"failures" integer DEFAULT 0 NOT NULL,
	CONSTRAINT "server_usage_server_id_tenant_id_day_pk" PRIMARY KEY("server_id","tenant_id","day")
);
--> statement-breakpoint
CREATE TABLE "servers" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"description" text NOT NULL,
	"remote_url" text NOT NULL,
	"transport" text,
	"auth" jsonb NOT NULL,
	"homepage" text,
	"repository" text,
	"categories" jsonb NOT NULL,
	"tools" jsonb NOT NULL,
	"origin" text NOT NULL,
	"active" boolean NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "settings" (
	"key" text PRIMARY KEY NOT NULL,
	"value" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "tenants" (
	"id" text PRIMARY KEY NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "api_keys" ADD CONSTRAINT "api_keys_tenant_id_tenants_id_fk" FOREIGN KEY ("tenant_id") REFERENCES "public"."tenants"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "api_keys_tenant" ON "api_keys" USING btree ("tenant_id");--> statement-breakpoint
CREATE INDEX "query_log_created_at" ON "query_log" USING btree ("created_at");