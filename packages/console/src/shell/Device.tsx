/**
 * The pages on which a person approves the login of a program: with a code that the program shows,
 * or after the program has opened the browser (OAuth 2.0 with PKCE).
 */
import { Button, Input, SegmentedControl } from '@mantine/core';
import { denialOfKeys, ROLE_SUMMARIES } from '@howdah/contract/permissions';
import { LOOPBACK_PATTERN } from '@howdah/contract/text';
import { ROLES, type Role } from '@howdah/contract/types';
import { useQuery } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import { meQuery, type Me } from '../api.ts';
import { approveDevice, denyDevice, deviceQuery, startDevice } from '../api-project.ts';
import { Form, TextField } from '../components/Form.tsx';
import { expiryOf, LifetimeInput } from '../components/Lifetime.tsx';
import { Load, Ago, Card, Denied, ErrorNotice, Facts, Notice, Waiting } from '../components/ui.tsx';
import { useCall } from '../components/use-call.tsx';
import { LoginForm } from './Login.tsx';
import { Logo } from './Logo.tsx';
import { Centered } from './Shell.tsx';
import ui from '../pages/project.module.css';

/** A page for the person of the session; the login, if there is none. */
function SignedIn({ children }: { children: (me: Me) => ReactNode }) {
  const { data: me, error } = useQuery(meQuery);
  if (me === null) return <LoginForm onEntered={() => Promise.resolve()} />;
  return (
    <Centered>
      <Logo size={44} />
      <h1>Log a program in</h1>
      {me === undefined ? (
        error === null ? (
          <Waiting rows={4} />
        ) : (
          <ErrorNotice error={error} />
        )
      ) : (
        children(me)
      )}
    </Centered>
  );
}

/** The code behind the # of the address. It is not in the history of the browser any more then. */
const codeInAddress = window.location.pathname === '/device' ? window.location.hash.slice(1) : '';
if (codeInAddress !== '') window.history.replaceState(null, '', '/device');

export function Device() {
  const [typed, setTyped] = useState(codeInAddress);
  const [code, setCode] = useState<string | null>(null);
  return (
    <SignedIn>
      {(me) =>
        code === null ? (
          <Card>
            <Form
              call={{ pending: false, error: null }}
              why={typed.trim() === '' ? 'type the code first' : null}
              onSubmit={() => setCode(typed.trim())}
              submit="Continue"
              button={{ fullWidth: true, size: 'md' }}
            >
              <TextField
                label="Code that the program shows"
                placeholder="BCDF-GHJK"
                value={typed}
                onChange={setTyped}
              />
            </Form>
          </Card>
        ) : (
          <WaitingLogin me={me} code={code} onBack={() => setCode(null)} />
        )
      }
    </SignedIn>
  );
}

/** The login that waits with a code. */
function WaitingLogin({ me, code, onBack }: { me: Me; code: string; onBack: () => void }) {
  const login = useQuery(deviceQuery(code));
  const [done, setDone] = useState<'approved' | 'denied' | null>(null);
  if (done !== null)
    return (
      <Notice tone="good">
        <p>
          {done === 'approved'
            ? 'The login is approved. The program gets its key within seconds.'
            : 'The login is denied. The program gets no key.'}
        </p>
      </Notice>
    );
  if (login.error !== null)
    return (
      <div className={ui.stack}>
        <ErrorNotice error={login.error} />
        <Button variant="default" onClick={onBack}>
          Type another code
        </Button>
      </div>
    );
  return (
    <Load query={login}>
      {({ user_code: found, client_name: program, address, created }) => (
        <Answer
          me={me}
          facts={[
            ['Program', program],
            ['From', address],
            ['Asked', <Ago key="asked" iso={created} />],
            [
              'Code',
              <span key="code" className="mono">
                {found}
              </span>,
            ],
          ]}
          approve={async (role, days) => {
            await approveDevice({ user_code: found, role, ...expiryOf(days) });
            setDone('approved');
          }}
          deny={async () => {
            await denyDevice(found);
            setDone('denied');
          }}
        />
      )}
    </Load>
  );
}

/** The question, with what is known of the program, and the two answers. */
function Answer({
  me,
  facts,
  approve,
  deny,
}: {
  me: Me;
  facts: readonly (readonly [string, ReactNode])[];
  approve: (role: Role, days: string) => Promise<void>;
  deny: () => Promise<void>;
}) {
  const [role, setRole] = useState<Role>('developer');
  const [days, setDays] = useState('90');
  const yes = useCall(() => approve(role, days), { quiet: true });
  const no = useCall(deny, { quiet: true });
  const why = denialOfKeys(me);
  return (
    <Card>
      <div className={ui.stack}>
        <Facts rows={facts} />
        <p className={ui.muted}>
          Approve it only if you began it yourself. The program gets a key of the project{' '}
          <strong>{me.project.name}</strong>, which you can revoke on the page Keys.
        </p>
        {why !== null && <Denied what="approve logins" why={why} />}
        <Form
          call={{ pending: yes.pending, error: yes.error ?? no.error }}
          why={why}
          onSubmit={() => yes.run()}
          submit="Approve"
          button={{ fullWidth: true, size: 'md' }}
        >
          <div>
            <Input.Label component="div">Role</Input.Label>
            <SegmentedControl<Role>
              aria-label="Role"
              fullWidth
              value={role}
              onChange={setRole}
              data={[...ROLES]}
            />
          </div>
          <p className={ui.muted}>
            A key with the role {role} {ROLE_SUMMARIES[role]}.
          </p>
          <LifetimeInput days={days} onChange={setDays} />
        </Form>
        {why === null && (
          <Button variant="default" fullWidth loading={no.pending} onClick={() => no.run()}>
            Deny
          </Button>
        )}
      </div>
    </Card>
  );
}

// ── a program that has opened the browser ────────────────────────────────────────────────────────

/** The request in the address; a sentence: why it is none. */
function requestInAddress() {
  const given = new URLSearchParams(window.location.search);
  const redirectUri = given.get('redirect_uri') ?? '';
  const challenge = given.get('code_challenge') ?? '';
  if (!new RegExp(LOOPBACK_PATTERN).test(redirectUri))
    return 'redirect_uri: it must be an address of this machine, like http://localhost:4000/.';
  if (given.get('response_type') !== 'code') return 'response_type: only code is known here.';
  if (given.get('code_challenge_method') !== 'S256' || !/^[\w-]{43}$/.test(challenge))
    return 'code_challenge: it must be there, made with S256; the program may be too old.';
  return { redirectUri, challenge, state: given.get('state') };
}

export function Authorize() {
  const [request] = useState(requestInAddress);
  return (
    <SignedIn>
      {(me) =>
        typeof request === 'string' ? (
          <Notice tone="bad">
            <p>The program asks in a way that is not understood. {request}</p>
          </Notice>
        ) : (
          <Return me={me} request={request} />
        )
      }
    </SignedIn>
  );
}

function Return({
  me,
  request: { redirectUri, challenge, state },
}: {
  me: Me;
  request: Exclude<ReturnType<typeof requestInAddress>, string>;
}) {
  const { host } = new URL(redirectUri);
  const goBack = (answer: Record<string, string>): void => {
    const target = new URL(redirectUri);
    target.search = new URLSearchParams({
      ...answer,
      ...(state === null ? {} : { state }),
    }).toString();
    window.location.assign(target);
  };
  return (
    <Answer
      me={me}
      facts={[['Program', `on this machine, at ${host}`]]}
      approve={async (role, days) => {
        const login = await startDevice({
          client_name: `program at ${host}`,
          redirect_uri: redirectUri,
          code_challenge: challenge,
        });
        await approveDevice({ user_code: login.user_code, role, ...expiryOf(days) });
        goBack({ code: login.device_code });
      }}
      deny={async () => goBack({ error: 'access_denied' })}
    />
  );
}

export function Authorized() {
  return (
    <Centered>
      <Logo size={44} />
      <h1>The program is logged in</h1>
      <p>You can close this page.</p>
    </Centered>
  );
}
