ALTER TABLE "connections" DROP CONSTRAINT "connections_status";--> statement-breakpoint
ALTER TABLE "connections" DROP CONSTRAINT "connections_sealed";--> statement-breakpoint
ALTER TABLE "connections" ADD COLUMN "for_users" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "connections" ADD CONSTRAINT "connections_status" CHECK ("connections"."status" in ('active', 'needs_reauth', 'rejected'));--> statement-breakpoint
ALTER TABLE "connections" ADD CONSTRAINT "connections_sealed" CHECK (("connections"."status" <> 'needs_reauth') = ("connections"."sealed" is not null));