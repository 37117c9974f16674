/** A setting that cannot be used. The message is one line that names the variable and says what to do. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}
