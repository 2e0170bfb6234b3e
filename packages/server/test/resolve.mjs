// Names in a domain have an address, as a record of DNS would give them.
// TEST_DOMAIN is DOMAIN=ADDRESS.
import dns from 'node:dns';

const [domain, address] = process.env.TEST_DOMAIN.split('=');
const { lookup } = dns;
dns.lookup = (name, ...more) => lookup(name.endsWith(`.${domain}`) ? address : name, ...more);
