import type { ProviderSettings } from '../../../config/index.ts';
import { SwitchboardError } from '../../../errors.ts';
import type { Provider } from './provider.ts';

/** The known providers by name; some may not be configured. */
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

  /** Returns the display name; a provider that is no longer configured is shown by its id. */
  titleOf(name: string): string {
    return this.#settings.get(name)?.title ?? name;
  }

  /** Returns a configured provider. @throws SwitchboardError `invalid_request` for an unknown one, `provider_not_configured` for a known one. */
  require(name: string): Provider {
    const provider = this.#configured.get(name);
    if (provider) return provider;
    if (this.#settings.has(name)) throw notConfigured(name);
    const known = [...this.#configured.keys()];
    throw new SwitchboardError(
      'invalid_request',
      known.length === 0
        ? `provider: ${JSON.stringify(name.slice(0, 64))} is unknown, and no provider is configured. ${HOW_TO_CONFIGURE}`
        : `provider: ${JSON.stringify(name.slice(0, 64))} is unknown. Use one of ${known.join(', ')}`,
    );
  }
}

const HOW_TO_CONFIGURE =
  'Ask the operator to set GOOGLE_CLIENT_ID and GOOGLE_CLIENT_SECRET, or SWITCHBOARD_PROVIDERS for other providers.';

const notConfigured = (name: string) =>
  new SwitchboardError(
    'provider_not_configured',
    name === 'google'
      ? 'The provider google has no client credentials yet. Ask the operator to set GOOGLE_CLIENT_ID and GOOGLE_CLIENT_SECRET.'
      : `The provider ${name} has no client credentials yet. Ask the operator to set them in SWITCHBOARD_PROVIDERS.`,
  );
