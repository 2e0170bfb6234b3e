/** The form that sets the images of a region on Kubernetes, as `howdah region set-images` does. */
import { ADDON_EXTENSIONS, type AddonExtension } from '@howdah/contract/types';
import { Checkbox } from '@mantine/core';
import { useState } from 'react';
import { setImages, type Cluster, type SetImages } from '../api-project.ts';
import { Fields, Form, TextField } from '../components/Form.tsx';
import { LinkButton } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useMe } from '../session.ts';
import { whyNotOperate } from '../status.ts';
import ui from './project.module.css';

/** An image as the form has it. */
type Version = { major: string; image: string; extensions: AddonExtension[] };

/** @param onDone called once the images are set */
export function ClusterImages({ cluster, onDone }: { cluster: Cluster; onDone: () => void }) {
  const [versions, setVersions] = useState(() => versionsOf(cluster));
  const [pooler, setPooler] = useState(cluster.pooler_image);
  const set = useCall(() => setImages(cluster.code, requestOf(versions, pooler)), {
    quiet: true,
    onDone,
  });
  const change = (place: number, changed: Partial<Version>): void =>
    setVersions((before) =>
      before.map((one, index) => (index === place ? { ...one, ...changed } : one)),
    );
  return (
    <Form
      call={set}
      why={whyNotOperate(useMe()) ?? whyIncomplete(versions)}
      onSubmit={() => set.run()}
      submit="Set the images"
    >
      {versions.map((version, place) => (
        // Versions are added at the end only.
        // oxlint-disable-next-line react/no-array-index-key
        <VersionFields key={place} version={version} change={(with_) => change(place, with_)} />
      ))}
      <div>
        <LinkButton
          onClick={() => setVersions([...versions, { major: '', image: '', extensions: [] }])}
        >
          Another version
        </LinkButton>
      </div>
      <Fields>
        <TextField label="Image of PgBouncer" wide value={pooler} onChange={setPooler} />
      </Fields>
      <p className={ui.muted}>
        Servers get another image with their next restart, resize or start. Poolers get theirs at
        once, which ends their sessions. A version whose image is empty is left out.
      </p>
    </Form>
  );
}

function VersionFields({
  version: { major, image, extensions },
  change,
}: {
  version: Version;
  change: (changed: Partial<Version>) => void;
}) {
  return (
    <Fields>
      <TextField
        label="Version of PostgreSQL"
        placeholder="18"
        value={major}
        onChange={(text) => change({ major: text })}
      />
      <TextField
        label={`Image of PostgreSQL ${major}`}
        placeholder="ghcr.io/cloudnative-pg/postgresql:18-standard-trixie"
        wide
        value={image}
        onChange={(text) => change({ image: text })}
      />
      {ADDON_EXTENSIONS.map((name) => (
        <Checkbox
          key={name}
          label={`has ${name}`}
          checked={extensions.includes(name)}
          onChange={(event) =>
            change({
              extensions: event.currentTarget.checked
                ? [...extensions, name]
                : extensions.filter((other) => other !== name),
            })
          }
        />
      ))}
    </Fields>
  );
}

const versionsOf = ({ images, extensions }: Cluster): Version[] =>
  Object.entries(images).map(([major, image]) => ({
    major,
    image,
    extensions: [...(extensions[major] ?? [])],
  }));

function whyIncomplete(versions: readonly Version[]): string | null {
  const kept = versions.filter(isKept);
  if (kept.length === 0) return 'type an image first';
  if (kept.some(({ major }) => major.trim() === '')) return 'type the version of each image first';
  const majors = new Set(kept.map(({ major }) => major.trim()));
  return majors.size < kept.length ? 'two images have the same version: leave one of them' : null;
}

const isKept = ({ image }: Version): boolean => image.trim() !== '';

function requestOf(versions: readonly Version[], pooler: string): SetImages {
  const kept = versions
    .filter(isKept)
    .map(({ major, ...rest }) => ({ major: major.trim(), ...rest }));
  return {
    images: Object.fromEntries(kept.map(({ major, image }) => [major, image.trim()])),
    extensions: Object.fromEntries(
      kept.flatMap(({ major, extensions }) =>
        extensions.length === 0 ? [] : [[major, extensions]],
      ),
    ),
    ...(pooler.trim() === '' ? {} : { pooler_image: pooler.trim() }),
  };
}
