/** The texts of networks, for the OpenAPI document. The server checks the networks. */

const OCTET = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';

/** The values of an octet that has so many bits of a network: of 2 bits, 0, 64, 128 and 192. */
function begins(bits: number): string {
  if (bits === 8) return OCTET;
  // A list of 128 would be long.
  if (bits === 7) return '(25[024]|2[0-4][02468]|1[0-9][02468]|[1-9]?[02468])';
  const step = 2 ** (8 - bits);
  return `(${Array.from({ length: 2 ** bits }, (_, index) => index * step).join('|')})`;
}

const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);

const VPC_SIZES = [
  '0\\.0/16',
  ...range(1, 8).map((bits) => `${begins(bits)}\\.0/${16 + bits}`),
  ...range(1, 4).map((bits) => `${OCTET}\\.${begins(bits)}/${24 + bits}`),
];

const PRIVATE = `(10\\.${OCTET}|172\\.(1[6-9]|2[0-9]|3[01])|192\\.168)`;
/** A private network, from /16 to /28, without a bit beyond it: 10.1.0.0/16. */
export const VPC_CIDR_PATTERN = `^${PRIVATE}\\.(${VPC_SIZES.join('|')})$`;

export const IPV4 = `${OCTET}(\\.${OCTET}){3}`;

const GROUP = '[0-9A-Fa-f]{1,4}';
const groups = (most: number): string =>
  most === 0 ? '' : `(${GROUP}(:${GROUP}){0,${most - 1}})?`;
/** Eight groups; or so many before `::`, and at most seven altogether. */
const IPV6 = [
  `(${GROUP}:){7}${GROUP}`,
  `::${groups(7)}`,
  ...range(1, 7).map((count) => `(${GROUP}:){${count}}:${groups(7 - count)}`),
].join('|');
export const IPV6_IN_URL = `\\[(${IPV6})\\]`;

const SIZE_4 = '(3[0-2]|[12]?[0-9])';
const SIZE_6 = '(12[0-8]|1[01][0-9]|[1-9]?[0-9])';

/** A network, IPv4 or IPv6. That no bit is beyond it is not part of the pattern. */
export const NETWORK_PATTERN = `^(${IPV4}/${SIZE_4}|(${IPV6})/${SIZE_6})$`;
