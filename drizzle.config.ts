import { defineConfig } from 'drizzle-kit';

export default defineConfig({
  dialect: 'postgresql',
  schema: './src/{core/**/schema,platform/database/settings}.ts',
  out: './drizzle',
});
