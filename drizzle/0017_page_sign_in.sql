ALTER TABLE "tenants" ADD COLUMN "page_provider" text;--> statement-breakpoint
ALTER TABLE "tenants" ADD COLUMN "page_claim" text;--> statement-breakpoint
ALTER TABLE "tenants" ADD CONSTRAINT "tenants_page_provider" CHECK (("tenants"."page_provider" is null) = ("tenants"."page_claim" is null));--> statement-breakpoint
ALTER TABLE "tenants" ADD CONSTRAINT "tenants_page_claim" CHECK ("tenants"."page_claim" in ('email', 'sub'));