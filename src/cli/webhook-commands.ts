import { seconds } from './access-commands.ts';
import { CommandFailed } from './admin-client.ts';
import { tenant, tenantOf, type Command, type Invocation } from './command.ts';
import { table } from './terminal.ts';

interface WebhookInfo {
  readonly url: string;
  readonly disabled_at: string | null;
  readonly old_secrets_until: string | null;
  readonly waiting: number;
  readonly oldest_waiting_at: string | null;
  readonly last_problem: string | null;
}

interface Changed {
  readonly webhook: WebhookInfo;
  readonly secret: string | null;
}

const pathOf = (options: Invocation['options']) =>
  `/tenants/${encodeURIComponent(tenantOf(options))}/webhook`;

const webhookText = (webhook: WebhookInfo) =>
  table([
    ['url', webhook.url],
    ['state', webhook.disabled_at === null ? 'active' : `disabled: answered 410 at ${webhook.disabled_at}`],
    ['waiting', waitingText(webhook)],
    ...(webhook.last_problem === null ? [] : [['last problem', webhook.last_problem]]),
    ...(webhook.old_secrets_until === null ? [] : [['old secrets', `until ${webhook.old_secrets_until}`]]),
  ]);

const waitingText = ({ waiting, oldest_waiting_at }: WebhookInfo) =>
  oldest_waiting_at === null ? '0' : `${waiting}, the oldest since ${oldest_waiting_at}`;

const secretText = (secret: string) => `Signing secret (shown once): ${secret}`;

const show: Command = {
  args: [],
  options: { tenant },
  help: "Shows a tenant's webhook, and how many events wait to be delivered.",
  async run({ admin, options }) {
    const json = (await admin.request('GET', pathOf(options))) as { webhook: WebhookInfo | null };
    const text = json.webhook
      ? webhookText(json.webhook)
      : 'No webhook. Set one: npx switchboard webhook set URL';
    return { json, text };
  },
};

const set: Command = {
  args: ['URL'],
  options: { tenant },
  help: 'Sets the address that receives events of connections ([webhooks.md](webhooks.md)). The first time, shows the signing secret. Later, sends at once what waits.',
  changes: true,
  async run({ admin, args: [url = ''], options }) {
    const json = (await admin.request('PUT', pathOf(options), { json: { url } })) as Changed;
    const more = json.secret === null ? [] : [secretText(json.secret)];
    const text = [webhookText(json.webhook), ...more, 'Try it: npx switchboard webhook test'].join('\n');
    return { json, text };
  },
};

const rotate: Command = {
  args: [],
  options: {
    overlap: {
      type: 'string',
      help: 'How long the old secret keeps signing, too: `0s`, `30m`, `24h`, `7d`. Default: `24h`.',
    },
    tenant,
  },
  help: 'Creates a new signing secret. It is shown only once.',
  changes: true,
  async run({ admin, options }) {
    const body = { overlap_sec: seconds(options['overlap'] ?? '24h') };
    const json = (await admin.request('POST', `${pathOf(options)}/rotate`, { json: body })) as Changed;
    const until = json.webhook.old_secrets_until;
    const old = until === null ? 'Older secrets no longer sign.' : `Older secrets sign until ${until}, too.`;
    return { json, text: `${secretText(json.secret ?? '')}\n${old}` };
  },
};

const test: Command = {
  args: [],
  options: { tenant },
  help: "Sends an event `webhook.test` and shows the receiver's answer.",
  async run({ admin, options }) {
    const json = (await admin.request('POST', `${pathOf(options)}/test`)) as {
      delivered: boolean;
      status: number | null;
      problem: string | null;
      took_ms: number;
    };
    const text = json.delivered
      ? `Delivered: HTTP ${json.status} after ${json.took_ms} ms.`
      : `Not delivered: ${json.problem}.`;
    return { json, text, failed: !json.delivered };
  },
};

const remove: Command = {
  args: [],
  options: { tenant },
  help: "Removes a tenant's webhook, its secrets and the events that wait.",
  changes: true,
  async run({ admin, options }) {
    const json = (await admin.request('POST', `${pathOf(options)}/remove`)) as { removed: boolean };
    if (!json.removed) throw new CommandFailed('There is no webhook.');
    return { json, text: 'Removed the webhook.' };
  },
};

export const webhookCommands = {
  'webhook set': set,
  'webhook show': show,
  'webhook test': test,
  'webhook rotate': rotate,
  'webhook remove': remove,
};
