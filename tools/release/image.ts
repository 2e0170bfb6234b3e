/**
 * An image of containers: Debian 13 with the package of Debian and all that it recommends. It is
 * made without a registry, by mmdebstrap, from the mirror that this machine's apt uses.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  createReadStream,
  createWriteStream,
  mkdirSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Source } from './tree.ts';

/** npm's names of architectures, and those of Debian and of images. */
const ARCHITECTURE = process.arch === 'arm64' ? 'arm64' : 'amd64';

const PACKAGES = [
  'ca-certificates',
  'libc6-dev',
  'libnss-wrapper',
  'patchelf',
  'pgbackrest',
  'postgresql-17',
  'postgresql-17-pgvector',
  'postgresql-17-timescaledb',
  'postgresql-client-17',
  'tcc',
];
/** Read-only sessions need headers whose package depends on 700 MB of compilers. */
const UNPACK_HEADERS =
  'cd /tmp && apt-get download postgresql-server-dev-17 && dpkg-deb --extract *.deb headers && ' +
  'mkdir -p /usr/local/include/howdah && ' +
  'cp -r headers/usr/include/postgresql/17/server /usr/local/include/howdah/postgresql-17 && ' +
  'rm -r headers *.deb';
const USER = 10_001;
/** The one directory that a container writes to, beside its temporary files. */
const DATA = '/data';

/** Debian's settings for the clusters that its packages of PostgreSQL make. */
const CLUSTERS = '/etc/postgresql-common/createcluster.d';

/** Files that differ from one installation of the same packages to the next. */
const VARYING = [
  'etc/machine-id',
  'etc/ssl/certs/ssl-cert-snakeoil.pem',
  'etc/ssl/private/ssl-cert-snakeoil.key',
  'var/cache/ldconfig/aux-cache',
  'var/lib/dbus/machine-id',
  'var/log/alternatives.log',
  'var/log/apt',
  'var/log/bootstrap.log',
  'var/log/dpkg.log',
];

/**
 * @param target directory for the archive, which has the package of Debian already
 * @param scratch an empty directory
 */
export async function makeImage(source: Source, target: string, scratch: string): Promise<void> {
  const { version, madeAt } = source;
  const root = join(scratch, 'root.tar');
  debootstrap(source, join(target, `howdah_${version}_all.deb`), root);
  const layout = join(scratch, 'layout');
  mkdirSync(join(layout, 'blobs/sha256'), { recursive: true });
  const diffId = await digestOf(root);
  const packed = join(scratch, 'layer.tar.gz');
  await pipeline(createReadStream(root), createGzip({ level: 6 }), createWriteStream(packed));
  const layer = {
    mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip',
    digest: await digestOf(packed),
    size: statSync(packed).size,
  };
  renameSync(packed, blobOf(layout, layer.digest));
  const config = writeBlob(layout, 'application/vnd.oci.image.config.v1+json', {
    created: madeAt.toISOString(),
    architecture: ARCHITECTURE,
    os: 'linux',
    config: {
      User: String(USER),
      ExposedPorts: { '8080/tcp': {} },
      Env: ['PATH=/usr/sbin:/usr/bin:/sbin:/bin', `HOWDAH_HOME=${DATA}`, 'HOWDAH_HOST=0.0.0.0'],
      Entrypoint: ['/usr/lib/howdah/entrypoint'],
      Volumes: { [DATA]: {} },
      StopSignal: 'SIGTERM',
    },
    rootfs: { type: 'layers', diff_ids: [diffId] },
  });
  const name = `localhost/howdah:${version}`;
  const manifest = {
    ...writeBlob(layout, 'application/vnd.oci.image.manifest.v1+json', {
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config,
      layers: [layer],
    }),
    annotations: { 'io.containerd.image.name': name, 'org.opencontainers.image.ref.name': version },
  };
  const write = (file: string, value: unknown): void =>
    writeFileSync(join(layout, file), JSON.stringify(value));
  write('oci-layout', { imageLayoutVersion: '1.0.0' });
  write('index.json', { schemaVersion: 2, manifests: [manifest] });
  // Engines older than Docker 25 read this file.
  const pathOf = (digest: string): string => digest.replace('sha256:', 'blobs/sha256/');
  write('manifest.json', [
    { Config: pathOf(config.digest), RepoTags: [name], Layers: [pathOf(layer.digest)] },
  ]);
  const files = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', '--mode=u=rwX,go=rX'];
  const moment = `--mtime=@${madeAt.getTime() / 1000}`;
  const archive = join(target, `howdah-${version}-${ARCHITECTURE}.image.tar`);
  execFileSync('tar', [...files, moment, '-C', layout, '-cf', archive, '.']);
}

function debootstrap({ root, madeAt }: Source, packageFile: string, archive: string): void {
  const mirror = execFileSync(
    'sh',
    [
      '-c',
      '. "$0"; echo "${DEBIAN_MIRROR:-$(mirror_of_this_machine)}"',
      join(root, 'tools/debian13/mirror.sh'),
    ],
    { encoding: 'utf8' },
  ).trim();
  const hook = (script: string): string => `--customize-hook=${script}`;
  execFileSync(
    'mmdebstrap',
    [
      '--variant=minbase',
      '--quiet',
      `--include=${PACKAGES.join(',')}`,
      // Without it Debian makes a database of its own.
      `--essential-hook=mkdir -p "$1${CLUSTERS}"`,
      `--essential-hook=echo "create_main_cluster = false" >"$1${CLUSTERS}/howdah.conf"`,
      hook(`cp ${JSON.stringify(packageFile)} "$1/howdah.deb"`),
      hook('chroot "$1" apt-get --quiet --yes --no-install-recommends install /howdah.deb'),
      hook('rm "$1/howdah.deb"'),
      hook(`chroot "$1" sh -c ${JSON.stringify(UNPACK_HEADERS)}`),
      hook(`printf image >"$1/usr/lib/howdah/installed-as"`),
      hook(`cp ${JSON.stringify(join(root, 'deploy/container/entrypoint'))} "$1/usr/lib/howdah/"`),
      hook(`chroot "$1" useradd --uid ${USER} --no-create-home --home-dir ${DATA} howdah`),
      hook(`install -d -o ${USER} -g ${USER} -m 755 "$1${DATA}"`),
      hook(`cd "$1" && rm -rf ${VARYING.join(' ')}`),
      'trixie',
      archive,
      ...(mirror === '' ? [] : [mirror]),
    ],
    {
      env: { ...process.env, SOURCE_DATE_EPOCH: String(madeAt.getTime() / 1000) },
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
}

type Descriptor = Readonly<{ mediaType: string; digest: string; size: number }>;

function writeBlob(layout: string, mediaType: string, value: object): Descriptor {
  const text = JSON.stringify(value);
  const digest = `sha256:${createHash('sha256').update(text).digest('hex')}`;
  writeFileSync(blobOf(layout, digest), text);
  return { mediaType, digest, size: Buffer.byteLength(text) };
}

const blobOf = (layout: string, digest: string): string =>
  join(layout, 'blobs', digest.replace(':', '/'));

async function digestOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return `sha256:${hash.digest('hex')}`;
}
