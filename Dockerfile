# The same Node that package.json pins for npm scripts (test/deploy.test.ts).
ARG NODE_VERSION=24.21.0

FROM node:${NODE_VERSION}-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
# Left out are the packages that carry a Node of their own (optionalDependencies), and a third of the rest: source maps and
# type declarations. Nothing that is run has an install script.
RUN npm ci --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund \
  && find node_modules -type f \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.cts' -o -name '*.d.mts' \) -delete

FROM node:${NODE_VERSION}-slim
# NODE_ENV=production: the start is refused without SWITCHBOARD_KEKS. HOST: refused without PUBLIC_URL or SWITCHBOARD_ALLOWED_HOSTS.
# MALLOC_*: a fifth less memory, because the C library returns what is freed (docs/operations/deploy.md).
ENV NODE_ENV=production \
    HOST=0.0.0.0 \
    PORT=8080 \
    SWITCHBOARD_DATA_DIR=/data \
    MALLOC_ARENA_MAX=2 \
    MALLOC_MMAP_THRESHOLD_=1048576 \
    MALLOC_TRIM_THRESHOLD_=16777216
WORKDIR /app
# All of it belongs to root: the process cannot change its own program.
COPY --from=dependencies /app/node_modules ./node_modules
COPY package.json LICENSE NOTICE ./
COPY bin ./bin
COPY catalogue ./catalogue
COPY drizzle ./drizzle
COPY src ./src
# The only folder that is written to. A new volume takes over its owner and mode.
RUN install --directory --owner=node --group=node --mode=0700 /data \
  && ln --symbolic /app/bin/switchboard.js /usr/local/bin/switchboard
VOLUME ["/data"]
# The image's user node, as numbers, so that Kubernetes can see that it is not root.
USER 1000:1000
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/readyz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# No shell and no npm in between: signals reach the process itself.
ENTRYPOINT ["node", "--max-semi-space-size=16", "/app/bin/switchboard.js"]
CMD ["serve"]
