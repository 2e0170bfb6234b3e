import { Option, type Command } from 'commander';
import { noun, verb } from '../command.ts';
import { homeDirectory } from '../connection.ts';
import { Failure } from '../exit.ts';
import { say, stopwatch } from '../output.ts';
import { loadServer } from '../server.ts';

type Place = { region: string };
const REGION = ['--region <region>', 'the region whose data it is', 'local'] as const;

/** `howdah store`: the data volume, for machines whose file system cannot clone files. */
export function addStore(program: Command): void {
  const store = noun(
    program,
    'store',
    'Show where the data is, and create a data volume (btrfs or XFS) ' +
      'on machines whose disk makes forks slow.',
  );

  verb(store, 'create', {
    does:
      'Create a data volume, a file system in a file, and move the data to it. Run ' +
      'as root, with the databases stopped.',
    example: 'howdah store create --size 100G',
  })
    .requiredOption('--size <size>', 'like 100G; the file is sparse and grows up to it')
    .addOption(
      new Option(
        '--fs <name>',
        'btrfs: a fork takes the same time whatever its size, but writes run at 0.6 to 0.75 ' +
          'of the speed; xfs: fast writes, but a fork takes longer the more files it has',
      )
        .choices(['btrfs', 'xfs'] as const)
        .default('btrfs' as const),
    )
    .option(...REGION)
    .action(async ({ size, fs, region }: Place & { size: string; fs: 'btrfs' | 'xfs' }) => {
      const server = await loadServer();
      const finished = stopwatch();
      await server.createStore(homeDirectory(), region, parseSize(size), fs, finished);
      finished(null);
      const { path } = await server.describeData(homeDirectory(), region);
      say(
        `The data is on the data volume now, at the same path: ${path}. ` +
          'howdah up mounts it when it is not mounted.',
      );
    });

  verb(store, 'show', {
    does: 'Show where the data is, on which file system, and how much room there is.',
    example: 'howdah store show',
  })
    .option(...REGION)
    .action(async ({ region }: Place) => {
      const server = await loadServer();
      const { path, fileSystem, store: image } = await server.describeData(homeDirectory(), region);
      const gigabytes = server.gigabytes;
      say(`data         ${path}`);
      if (fileSystem !== null) {
        say(
          `file system  ${fileSystem.name}, ${gigabytes(fileSystem.totalBytes)}, ` +
            `of which ${gigabytes(fileSystem.freeBytes)} are free`,
        );
      }
      if (image === null)
        say(
          fileSystem === null
            ? 'Nothing yet: howdah up, or howdah store create first'
            : 'No data volume: the data is on the disk itself',
        );
      else {
        say(
          `data volume  ${image.path}${image.mounted ? '' : ', not mounted: howdah up mounts it'}`,
        );
        say(
          `on the disk  ${gigabytes(image.diskBytes)} of at most ` +
            `${gigabytes(image.sizeBytes)}; ${gigabytes(image.diskFreeBytes)} are free there`,
        );
      }
    });

  verb(store, 'resize', {
    does: 'Enlarge the data volume while the databases run. Run as root.',
    example: 'howdah store resize --size 200G',
  })
    .requiredOption('--size <size>', 'its new size, like 200G')
    .option(...REGION)
    .action(async ({ size, region }: Place & { size: string }) => {
      const server = await loadServer();
      await server.resizeStore(homeDirectory(), region, parseSize(size));
      say(`The data volume has ${size} now.`);
    });
}

const GIB = 1024 ** 3;

function parseSize(text: string): number {
  const [, digits, unit] = /^([1-9][0-9]{0,4})([GT])$/.exec(text) ?? [];
  if (digits === undefined)
    throw new Failure(
      `--size: found ${text}; expected a whole number and G or T, like 100G`,
      'usage',
    );
  return Number(digits) * GIB * (unit === 'T' ? 1024 : 1);
}
