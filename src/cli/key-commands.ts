import { SCOPES } from '../core/access/caller.ts';
import { listOf, UsageError, type Command } from './command.ts';
import { table } from './io.ts';

interface KeyInfo {
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  readonly user: string | null;
  readonly scopes: readonly string[];
  readonly monthly_quota: Counts<number | null>;
  readonly used_this_month: Counts<number>;
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
}

interface Counts<Count> {
  readonly calls: Count;
  readonly searches: Count;
}

const QUOTA_OPTIONS = {
  calls: { type: 'string', help: 'proxied calls a calendar month (UTC), or none for no limit' },
  searches: { type: 'string', help: 'searches a calendar month (UTC), or none for no limit' },
} as const;

const create: Command = {
  args: [],
  options: {
    name: { type: 'string', help: 'what the key is for' },
    scopes: {
      type: 'string',
      help: `comma-separated, of ${SCOPES.join(', ')} (default: search,proxy,identity; with --user search,proxy)`,
    },
    expires: { type: 'string', help: 'ISO 8601 time after which it is refused' },
    tenant: { type: 'string', help: 'who owns it; made when it is new (default: local)' },
    user: { type: 'string', help: "act for this one user of the tenant's, without an identity token" },
    ...QUOTA_OPTIONS,
  },
  help: 'make an API key; it is shown once',
  changes: true,
  async run({ admin, options }) {
    const json = {
      name: options['name'] ?? 'unnamed',
      scopes: listOf(options['scopes']),
      expires_at: options['expires'],
      tenant: options['tenant'],
      user_id: options['user'],
      monthly_quota: quota(options),
    };
    const created = (await admin.request('POST', '/keys', { json })) as KeyInfo & { key: string };
    return { json: created, text: `API key (shown once): ${created.key}` };
  },
};

const list: Command = {
  args: [],
  help: 'list the API keys, with what they have used this month',
  async run({ admin }) {
    const answer = (await admin.request('GET', '/keys')) as { keys: KeyInfo[] };
    const rows = answer.keys.map(key => [
      key.id,
      stateOf(key),
      key.tenant,
      key.scopes.join(','),
      key.created_at,
      key.user ?? '-',
      used(key, 'calls'),
      used(key, 'searches'),
      key.name,
    ]);
    const head = ['ID', 'STATE', 'TENANT', 'SCOPES', 'CREATED', 'USER', 'CALLS', 'SEARCHES', 'NAME'];
    return { json: answer, text: table([head, ...rows]) };
  },
};

/** `12/100`, or `12` without a limit. */
const used = ({ used_this_month, monthly_quota }: KeyInfo, name: keyof Counts<unknown>) =>
  `${used_this_month[name]}${monthly_quota[name] === null ? '' : `/${monthly_quota[name]}`}`;

const set: Command = {
  args: ['ID'],
  options: { name: { type: 'string', help: 'what the key is for' }, ...QUOTA_OPTIONS },
  help: 'change the name or the monthly quota of an API key; what is not given stays',
  changes: true,
  async run({ admin, args: [id = ''], options }) {
    const json = { name: options['name'], monthly_quota: quota(options) };
    const path = `/keys/${encodeURIComponent(id)}`;
    const key = (await admin.request('POST', path, { json })) as KeyInfo;
    const { calls, searches } = key.monthly_quota;
    const text = `${id} (${key.name}): ${calls ?? 'any number of'} calls and ${searches ?? 'any number of'} searches a month.`;
    return { json: key, text };
  },
};

/** @throws UsageError for what is neither a number nor `none`. */
function quota(options: Readonly<Record<string, unknown>>): Partial<Counts<number | null>> {
  const given = (['calls', 'searches'] as const).filter(name => options[name] !== undefined);
  return Object.fromEntries(given.map(name => [name, limit(name, options[name])]));
}

function limit(name: string, value: unknown): number | null {
  if (value === 'none') return null;
  if (/^[1-9]\d{0,9}$/.test(String(value))) return Number(value);
  throw new UsageError(`--${name} must be a whole number from 1 on, or none`);
}

const stateOf = ({ revoked_at, expires_at }: KeyInfo) => {
  if (revoked_at !== null) return 'revoked';
  return expires_at !== null && Date.parse(expires_at) <= Date.now() ? 'expired' : 'active';
};

const rotate: Command = {
  args: ['ID'],
  options: {
    overlap: { type: 'string', help: 'how long the old key goes on: 90s, 30m, 24h, 7d (default 24h)' },
  },
  help: 'make a key in place of another, which ends after an overlap; it is shown once',
  changes: true,
  async run({ admin, args: [id = ''], options }) {
    const json = { overlap_sec: seconds(options['overlap'] ?? '24h') };
    const path = `/keys/${encodeURIComponent(id)}/rotate`;
    const created = (await admin.request('POST', path, { json })) as KeyInfo & {
      key: string;
      replaces: KeyInfo;
    };
    const text = `API key (shown once): ${created.key}\n${id} ends at ${created.replaces.expires_at}.`;
    return { json: created, text };
  },
};

const UNIT_SEC: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

function seconds(value: unknown): number {
  const [, count, unit = ''] = /^(\d{1,9})([smhd])$/.exec(String(value)) ?? [];
  const factor = UNIT_SEC[unit];
  if (count === undefined || factor === undefined)
    throw new UsageError('--overlap must be a number with a unit: 90s, 30m, 24h, 7d');
  return Number(count) * factor;
}

const revoke: Command = {
  args: ['ID'],
  help: 'end an API key at once',
  changes: true,
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('POST', `/keys/${encodeURIComponent(id)}/revoke`);
    return { json, text: `Revoked ${id}.` };
  },
};

const rewrap: Command = {
  args: [],
  help: 'seal everything in the vault with the first key of SWITCHBOARD_KEKS; run again, it goes on where it was',
  changes: true,
  async run({ admin, io }) {
    let total = 0;
    for (;;) {
      const { sealed } = (await admin.request('POST', '/vault/rewrap')) as { sealed: number };
      if (sealed === 0) return { json: { sealed: total }, text: `Done: ${total} rows were sealed anew.` };
      total += sealed;
      io.complain(`${total} rows sealed anew`);
    }
  },
};

const retire: Command = {
  args: ['KEK_ID'],
  help: 'say whether a key can be taken out of SWITCHBOARD_KEKS',
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('POST', '/vault/retire', { json: { key_id: id } });
    return { json, text: `Nothing is sealed with ${id} any more: take it out of SWITCHBOARD_KEKS.` };
  },
};

const rotateSigning: Command = {
  args: [],
  help: 'sign identity tokens with the next key; the old one stays published until its last token has expired',
  changes: true,
  async run({ admin }) {
    const json = (await admin.request('POST', '/signing-keys/rotate')) as { active: string; retired: string };
    return { json, text: `${json.active} signs now, ${json.retired} is retired.` };
  },
};

export const keyCommands = {
  'keys create': create,
  'keys list': list,
  'keys set': set,
  'keys rotate': rotate,
  'keys revoke': revoke,
  'keys rewrap': rewrap,
  'keys retire': retire,
  'keys rotate-signing': rotateSigning,
};
