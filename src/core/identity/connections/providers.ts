import { SwitchboardError } from '../../../errors.ts';
import type { Provider } from './provider.ts';
import type { ProviderSettings } from '../../../config/index.ts';

/** The providers by name: known ones, of which some may not be configured. */
export class Providers {
  readonly #settings: ReadonlyMap<string, ProviderSettings>;
  readonly #configured: ReadonlyMap<string, Provider>;

  constructor(settings: ReadonlyMap<string, ProviderSettings>, configured: ReadonlyMap<string, Provider>) {
    this.#settings = settings;
    this.#configured = configured;
  }

  get(name: string): Provider | undefined {
    return this.#configured.get(name);
  }

  /** What pages call it; a provider that was configured once and is no more keeps its name. */
  titleOf(name: string): string {
    return this.#settings.get(name)?.title ?? name;
  }

  /** @throws SwitchboardError `invalid_request` for an unknown one, `provider_not_configured` for a known one. */
  require(name: string): Provider {
    const provider = this.#configured.get(name);
    if (provider) return provider;
    if (this.#settings.has(name)) throw notConfigured(name);
    const known = [...this.#configured.keys()];
    throw new SwitchboardError(
      'invalid_request',
      known.length === 0
        ? `provider: ${JSON.stringify(name.slice(0, 64))} is not known, and none is configured. ${HOW_TO_CONFIGURE}`
        : `provider: ${JSON.stringify(name.slice(0, 64))} is not known. Use one of ${known.join(', ')}`,
    );
  }
}

const HOW_TO_CONFIGURE =
  'The operator sets GOOGLE_CLIENT_ID and GOOGLE_CLIENT_SECRET, or SWITCHBOARD_PROVIDERS for others.';

const notConfigured = (name: string) =>
  new SwitchboardError(
    'provider_not_configured',
    name === 'google'
      ? 'The provider google has no client credentials yet. The operator sets GOOGLE_CLIENT_ID and GOOGLE_CLIENT_SECRET.'
      : `The provider ${name} has no client credentials yet. The operator sets them in SWITCHBOARD_PROVIDERS.`,
  );
