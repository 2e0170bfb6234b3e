/** The login: by a one-time link, or with a key. */
import { PasswordInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { client, meQuery } from '../api.ts';
import { Form } from '../components/Form.tsx';
import { Card, Code } from '../components/ui.tsx';
import { queryClient } from '../live.ts';
import { Logo } from './Logo.tsx';
import { Centered } from './Shell.tsx';

/**
 * The token of a one-time link. It is removed from the address at once, so that no history or
 * bookmark keeps it.
 */
const linkToken = window.location.pathname === '/login' ? window.location.hash.slice(1) : '';
if (linkToken !== '') window.history.replaceState(null, '', '/login');
let opening: Promise<unknown> | null = null;

/** The page of the login. */
export function Login() {
  const navigate = useNavigate();
  return <LoginForm onEntered={() => navigate({ to: '/services', replace: true })} />;
}

/** The login, before any page. */
export function LoginForm({ onEntered }: { onEntered: () => Promise<void> }) {
  const [key, setKey] = useState('');
  const enter = async (call: Promise<unknown>): Promise<void> => {
    await call;
    await queryClient.fetchQuery({ ...meQuery, staleTime: 0 });
    await onEntered();
  };
  const byLink = useMutation({
    // The token is used once, although React may render twice.
    mutationFn: () =>
      enter((opening ??= client.POST('/auth/sessions/open', { body: { token: linkToken } }))),
  });
  const byKey = useMutation({
    mutationFn: () =>
      enter(client.POST('/auth/sessions', { headers: { Authorization: `Bearer ${key.trim()}` } })),
  });
  const { mutate: openLink } = byLink;
  useEffect(() => {
    if (linkToken !== '') openLink();
  }, [openLink]);

  if (linkToken !== '' && byLink.error === null) {
    return (
      <Centered>
        <Logo size={44} />
        <h1>Opening Howdah…</h1>
      </Centered>
    );
  }
  return (
    <Centered>
      <Logo size={44} />
      <h1>Your own Postgres cloud</h1>
      <p>
        Open the link that howdah up printed, or paste a key: the public half, a colon and the
        secret half.
      </p>
      <Card>
        <Form
          call={{ pending: byKey.isPending, error: byKey.error ?? byLink.error }}
          why={key.trim() === '' ? 'paste a key first' : null}
          onSubmit={() => byKey.mutate()}
          submit="Log in"
          button={{ fullWidth: true, size: 'md' }}
        >
          <PasswordInput
            label="Key"
            placeholder="HDxxxxxxxx:secret"
            autoComplete="current-password"
            value={key}
            onChange={(event) => setKey(event.currentTarget.value)}
            visibilityToggleButtonProps={{ 'aria-label': 'Show the key' }}
            data-autofocus
            size="md"
          />
        </Form>
      </Card>
      <p style={{ margin: '22px 0 8px' }}>A new link, on the machine that Howdah runs on:</p>
      <Code value="./howdah console" label="command" />
    </Centered>
  );
}
