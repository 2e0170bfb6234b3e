/** Creates a service with the data of one of another installation, from its recovery kit. */
import { FileInput, Radio, Textarea, TextInput } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import {
  createFromKit,
  listInKit,
  rememberPassword,
  type KitService,
  type RecoveryKit,
} from '../api.ts';
import { Choice } from '../components/Choice.tsx';
import { Fields, Form, NameInput } from '../components/Form.tsx';
import { Card, Denied, Notice, PageHead } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { useMe } from '../session.ts';
import { whyNotOperate } from '../status.ts';
import classes from './create.module.css';

export function FromKit() {
  const why = whyNotOperate(useMe());
  return (
    <>
      <PageHead
        title="Create from a recovery kit"
        about={
          'A copy of a service of another installation, ' +
          'from its repository, which is only read.'
        }
      />
      <div className={classes.form}>
        {why === null ? <Steps /> : <Denied what="create services from a kit" why={why} />}
      </div>
    </>
  );
}

/** The services of a kit, as of a moment. */
type Listed = { text: string; moment: string; services: readonly KitService[] };

/** The kit, and when its services are known, the choice of one. */
function Steps() {
  const { project } = useMe();
  const [text, setText] = useState('');
  const [moment, setMoment] = useState('');
  const [listed, setListed] = useState<Listed | null>(null);
  const kit = parseKit(text);
  const target = moment.trim() === '' ? {} : { target_time: moment.trim() };
  const list = useCall(
    async () => {
      if (kit === null) throw new Error('there is no kit');
      return { text, moment, services: await listInKit(project.id, { kit, ...target }) };
    },
    { quiet: true, onDone: setListed },
  );
  // Another kit, or another moment, has other services.
  const change = (set: (value: string) => void) => (value: string) => {
    set(value);
    setListed(null);
    list.reset();
  };
  return (
    <>
      <Card title="Recovery kit" hint="a secret: it is kept, encrypted, until the copy is ready">
        <Form
          call={list}
          why={whyNoKit(text, kit)}
          onSubmit={() => list.run()}
          submit="List its services"
        >
          <KitInput text={text} isKit={kit !== null} onChange={change(setText)} />
          <TextInput
            label="Moment"
            placeholder="2026-01-31T12:00:00Z"
            description="its state at this moment; empty: the newest"
            autoComplete="off"
            value={moment}
            onChange={(event) => change(setMoment)(event.currentTarget.value)}
          />
        </Form>
      </Card>
      {listed?.text === text && listed.moment === moment && kit !== null && (
        <ChooseService services={listed.services} request={{ kit, ...target }} />
      )}
    </>
  );
}

function KitInput({
  text,
  isKit,
  onChange,
}: {
  text: string;
  isKit: boolean;
  onChange: (text: string) => void;
}) {
  const [file, setFile] = useState<File | null>(null);
  return (
    <>
      <FileInput
        label="File"
        placeholder="recovery-kit.json"
        clearable
        clearButtonProps={{ 'aria-label': 'Clear: File' }}
        value={file}
        onChange={(chosen) => {
          setFile(chosen);
          if (chosen === null) onChange('');
          else void chosen.text().then(onChange);
        }}
      />
      {file === null && (
        <Textarea
          label="Or its contents"
          autoComplete="off"
          spellCheck={false}
          rows={4}
          value={text}
          onChange={(event) => onChange(event.currentTarget.value)}
          error={text !== '' && !isKit ? NO_KIT : undefined}
        />
      )}
    </>
  );
}

const NO_KIT = 'this is no recovery kit: howdah repo kit prints one';

function whyNoKit(text: string, kit: RecoveryKit | null): string | null {
  if (text === '') return 'choose the file of a recovery kit first, or paste its contents';
  return kit === null ? NO_KIT : null;
}

/** The API checks the fields of a kit; null: it is none. */
function parseKit(text: string): RecoveryKit | null {
  try {
    const kit: RecoveryKit | null = JSON.parse(text);
    return typeof kit === 'object' && kit !== null && 'repository' in kit ? kit : null;
  } catch {
    return null;
  }
}

function ChooseService({
  services,
  request,
}: {
  services: readonly KitService[];
  request: { kit: RecoveryKit; target_time?: string };
}) {
  const { project } = useMe();
  const navigate = useNavigate();
  const [chosen, setChosen] = useState('');
  const [name, setName] = useState('');
  const found = services.find(({ service_id: id }) => id === chosen);
  const create = useCall(
    () =>
      createFromKit(project.id, {
        ...request,
        service: chosen,
        ...(name.trim() === '' ? {} : { name: name.trim() }),
      }),
    {
      quiet: true,
      onDone: (service) => {
        rememberPassword(service);
        void navigate({ to: '/services/$id', params: { id: service.service_id } });
      },
    },
  );
  return (
    <Card title="Service" hint="the copy has an id, an endpoint and a password of its own">
      <Form
        call={create}
        why={found === undefined ? 'choose a service first' : null}
        onSubmit={() => create.run()}
        submit={`Create ${name.trim() || (found?.name ?? 'the copy')}`}
      >
        {services.length === 0 && (
          <Notice tone="warn">
            <p>The repository has no services.</p>
          </Notice>
        )}
        <Radio.Group aria-label="Service" value={chosen} onChange={setChosen}>
          <div className={classes.list}>
            {services.map(({ service_id: id, name: itsName, state, can_come_back: isThere }) => (
              <Choice key={id} value={id} title={itsName} why={isThere ? null : state}>
                {id} {state}
              </Choice>
            ))}
          </div>
        </Radio.Group>
        <Fields>
          <NameInput label="Name" placeholder={found?.name ?? ''} value={name} onChange={setName} />
        </Fields>
      </Form>
    </Card>
  );
}
