// Preloaded (`node --import`) into a test upstream that would listen on every address: keeps it on loopback.
import net from 'node:net';

const { listen } = net.Server.prototype;
net.Server.prototype.listen = function (port, ...rest) {
  if (typeof port === 'object') return listen.call(this, port, ...rest);
  return listen.call(
    this,
    Number(port),
    '127.0.0.1',
    ...rest.filter(argument => typeof argument === 'function'),
  );
};
