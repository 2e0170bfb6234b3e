/** The repositories of the installation: where backups are kept off the machine. */
import { HowdahError } from '@howdah/client';
import { Button, Modal } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { HardDriveUpload } from 'lucide-react';
import { useState } from 'react';
import { repositoriesQuery, repositoryCalls, type Repository } from '../api-project.ts';
import { ConfirmName } from '../components/ConfirmName.tsx';
import {
  Load,
  ActionButton,
  Ago,
  Card,
  Denied,
  Empty,
  ErrorNotice,
  Facts,
  Notice,
  PageHead,
  Pill,
} from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { bytes, roughly } from '../format.ts';
import { useMe } from '../session.ts';
import { whyNotOperate } from '../status.ts';
import { saveFile } from '../save-file.ts';
import { NewRepository, REPOSITORY_TYPE_NAMES } from './NewRepository.tsx';
import ui from './project.module.css';

export function Repositories() {
  const found = useQuery({ ...repositoriesQuery, refetchInterval: 5000 });
  return (
    <>
      <PageHead
        title="Repositories"
        about={
          'A repository keeps the backups of all services off the machine. ' +
          'With its recovery kit, another machine gets everything back.'
        }
      />
      <div className={ui.stack}>
        {isRefused(found.error) ? (
          <Denied what="see repositories" why={found.error.message} />
        ) : (
          <Load query={found}>{(repositories) => <List repositories={repositories} />}</Load>
        )}
      </div>
    </>
  );
}

const isRefused = (error: unknown): error is HowdahError =>
  error instanceof HowdahError && error.status === 403;

function List({ repositories }: { repositories: readonly Repository[] }) {
  const why = whyNotOperate(useMe());
  const [added, setAdded] = useState<Repository | null>(null);
  return (
    <>
      {repositories.length === 0 && (
        <Card>
          <Empty icon={HardDriveUpload} title="No repository">
            Backups are on the disk of the data only. A lost disk loses both: add a repository.
          </Empty>
        </Card>
      )}
      {repositories.map((repository) => (
        <One key={repository.id} repository={repository} why={why} />
      ))}
      {why === null ? (
        <NewRepository onAdded={setAdded} />
      ) : (
        <Denied what="change repositories" why={why} />
      )}
      {added !== null && <Kit repository={added} onClose={() => setAdded(null)} />}
    </>
  );
}

/** The age at which a service gets the warning REPOSITORY. */
const BEHIND_SECONDS = 300;

function State({ repository }: { repository: Repository }) {
  const { problem, behind_seconds: behind, services, waiting_services: waiting } = repository;
  if (problem !== null) return <Pill tone="bad">Problem</Pill>;
  if (services + waiting === 0) return <Pill tone="idle">No services</Pill>;
  if (waiting > 0) return <Pill tone="busy">First backups</Pill>;
  if (behind === null) return <Pill tone="busy">First WAL</Pill>;
  return behind > BEHIND_SECONDS ? (
    <Pill tone="warn">Behind</Pill>
  ) : (
    <Pill tone="good">Up to date</Pill>
  );
}

function One({ repository, why }: { repository: Repository; why: string | null }) {
  const { id, name, type, location, problem } = repository;
  const calls = repositoryCalls(id);
  const [isKitShown, setKitShown] = useState(false);
  const check = useCall(calls.check, { quiet: true });
  return (
    <Card title={name} hint={<State repository={repository} />}>
      <div className={ui.stack}>
        <p className={ui.muted} style={{ overflowWrap: 'anywhere' }}>
          {REPOSITORY_TYPE_NAMES[type]}: <span className="mono">{location}</span>
        </p>
        {problem !== null && (
          <Notice tone="bad">
            <p>{problem}</p>
          </Notice>
        )}
        <Facts rows={factsOf(repository)} />
        <ErrorNotice error={check.error} />
        <div className={ui.row}>
          <ActionButton
            variant="default"
            why={why}
            loading={check.pending}
            onClick={() => check.run()}
          >
            Check now
          </ActionButton>
          <ActionButton variant="default" why={why} onClick={() => setKitShown(true)}>
            Recovery kit
          </ActionButton>
          <ConfirmName
            label="Remove…"
            title={`Remove ${name}`}
            name={name}
            why={why}
            submit="Remove the repository"
            call={calls.delete}
          >
            No more backups go to it. Those in it stay. Save its recovery kit first: without it they
            cannot be read on another machine.
          </ConfirmName>
        </div>
      </div>
      {isKitShown && <Kit repository={repository} onClose={() => setKitShown(false)} />}
    </Card>
  );
}

const factsOf = ({
  behind_seconds: behind,
  services,
  waiting_services: waiting,
  last_backup: last,
  backups_mb: backupsMb,
  retention_days: days,
  control_saved: saved,
}: Repository) =>
  [
    ['Behind', behind === null ? 'unknown' : roughly(behind)],
    ['Services', waiting === 0 ? String(services) : `${services} of ${services + waiting}`],
    ['Last backup', last === null ? 'none yet' : <Ago iso={last} />],
    ['Backups', bytes(backupsMb * 1e6)],
    ['Kept for', days === 1 ? '1 day' : `${days} days`],
    ['Control plane', saved === null ? 'not saved yet' : <Ago iso={saved} />],
  ] as const;

/** Saves the recovery kit as a file. It is read when it is asked for, and not kept in the page. */
function Kit({
  repository: { id, name },
  onClose,
}: {
  repository: Repository;
  onClose: () => void;
}) {
  const read = useCall(repositoryCalls(id).readKit, {
    quiet: true,
    onDone: (kit) => {
      saveFile(
        `recovery-kit-${name.replaceAll(/[^\w.-]+/g, '-')}.json`,
        `${JSON.stringify(kit, null, 2)}\n`,
        'application/json',
      );
      onClose();
    },
  });
  return (
    <Modal
      opened
      onClose={onClose}
      title={`The recovery kit of ${name}`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <div className={ui.stack}>
        <Notice tone="warn">
          <p>
            The kit is a secret: with it, all data in the repository can be read. Without it, nobody
            can read them, not even you.
          </p>
        </Notice>
        <p style={{ margin: 0, lineHeight: 1.55 }}>
          Keep it where neither this machine nor the repository is. On a new machine,{' '}
          <code>howdah recover</code> needs it.
        </p>
        <ErrorNotice error={read.error} />
        <div>
          <Button loading={read.pending} onClick={() => read.run()} data-autofocus>
            Download the kit
          </Button>
        </div>
      </div>
    </Modal>
  );
}
