-- A search reads hundreds of rows: most are whole in one page, and not in pieces elsewhere.
CREATE TABLE "search_documents" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"embedder" text NOT NULL,
	"words" "bytea" NOT NULL,
	"vectors" "bytea" NOT NULL,
	"vectors_hash" integer NOT NULL,
	"is_complete" boolean NOT NULL,
	"terms" integer[] NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL
) WITH (toast_tuple_target = 8160);
--> statement-breakpoint
CREATE INDEX "search_documents_terms" ON "search_documents" USING gin ("terms");