// Preloaded (`node --import`) into Switchboard: the hosts where clients publish what they say of themselves are at a port here.
import net from 'node:net';
import tls from 'node:tls';

const { hosts, port } = JSON.parse(process.env.DOCUMENT_HOSTS ?? '{"hosts":[]}');
const { connect } = tls;
tls.connect = (options, ...rest) => {
  if (!hosts.includes(options?.host)) return connect(options, ...rest);
  const socket = net.connect(port, '127.0.0.1');
  socket.once('connect', () => socket.emit('secureConnect'));
  return socket;
};
