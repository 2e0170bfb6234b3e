/** The frame of every page: navigation, the user, and whether the control plane answers. */
import {
  ActionIcon,
  Button,
  Drawer,
  SegmentedControl,
  Tooltip,
  useMantineColorScheme,
  type MantineColorScheme,
} from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { Link, Navigate, Outlet, useRouter, useRouterState } from '@tanstack/react-router';
import {
  Archive,
  BellRing,
  Compass,
  Copy,
  Database,
  Gauge,
  HardDriveUpload,
  KeyRound,
  LogOut,
  MapPin,
  Menu,
  Monitor,
  Moon,
  Network,
  ScrollText,
  Send,
  ShieldCheck,
  Sun,
  Unplug,
  Webhook,
} from 'lucide-react';
import { Suspense, useEffect, type ReactNode } from 'react';
import { ButtonLink, Card, Empty, ErrorNotice, Waiting } from '../components/ui.tsx';
import { client, meQuery } from '../api.ts';
import { useEvents } from '../events.ts';
import { queryClient, useLost } from '../live.ts';
import { useMe } from '../session.ts';
import { Logo } from './Logo.tsx';
import classes from './shell.module.css';

export function Shell() {
  const { data: me, error } = useQuery(meQuery);
  const lost = useLost();
  if (me === null) return <Navigate to="/login" replace />;
  if (me === undefined)
    return (
      <Centered>
        {lost ? <Lost /> : error !== null ? <ErrorNotice error={error} /> : <Waiting rows={4} />}
      </Centered>
    );
  return (
    <>
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <div className={classes.frame}>
        <TopBar />
        <aside className={classes.side}>
          <Brand />
          <Navigation />
        </aside>
        <main id="main" tabIndex={-1} className={classes.main}>
          <div className={classes.inner}>
            <Live>
              <Suspense fallback={<Waiting rows={6} />}>
                <Outlet />
              </Suspense>
            </Live>
          </div>
        </main>
      </div>
      {lost && <Lost />}
    </>
  );
}

/** Follows the events while the frame is shown. A page reads when it does not miss any. */
function Live({ children }: { children: ReactNode }) {
  return useEvents(useMe().project.id) ? children : <Waiting rows={6} />;
}

function Lost() {
  return (
    <div className={classes.lost} role="alert">
      <Unplug size={18} aria-hidden />
      The control plane does not answer. Your databases keep running. This page continues by itself.
    </div>
  );
}

function Brand() {
  return (
    <Link to="/services" className={classes.brand}>
      <Logo />
      Howdah
    </Link>
  );
}

/** The navigation on a phone. */
function TopBar() {
  const [opened, { open, close }] = useDisclosure(false);
  const path = useRouterState({ select: ({ location }) => location.pathname });
  useEffect(close, [path, close]);
  return (
    <header className={classes.bar}>
      <Brand />
      <ActionIcon variant="subtle" color="gray" size={40} aria-label="Menu" onClick={open}>
        <Menu size={22} />
      </ActionIcon>
      <Drawer
        opened={opened}
        onClose={close}
        position="right"
        size={280}
        title="Howdah"
        closeButtonProps={{ 'aria-label': 'Close the menu' }}
      >
        <Navigation />
      </Drawer>
    </header>
  );
}

function Navigation() {
  const { name, role, project } = useMe();
  const logout = async (): Promise<void> => {
    await client.POST('/auth/logout');
    queryClient.clear();
    window.location.assign('/login');
  };
  return (
    <>
      <nav aria-label="Main">
        <NavLink to="/services" icon={<Database size={17} />} label="Services" />
        <NavLink to="/project/leases" icon={<Copy size={17} />} label="Leases" />
        <NavLink to="/project/deleted" icon={<Archive size={17} />} label="Deleted" />
        <div className={classes.group}>Project</div>
        <NavLink to="/project/vpcs" icon={<Network size={17} />} label="VPCs" />
        <NavLink to="/project/allow-lists" icon={<ShieldCheck size={17} />} label="Allow lists" />
        <NavLink to="/project/keys" icon={<KeyRound size={17} />} label="Keys" />
        <NavLink to="/project/alerts" icon={<BellRing size={17} />} label="Alerts" />
        <NavLink to="/project/exporters" icon={<Send size={17} />} label="Exporters" />
        <NavLink to="/project/webhooks" icon={<Webhook size={17} />} label="Webhooks" />
        <NavLink to="/project/audit" icon={<ScrollText size={17} />} label="Audit log" />
        <NavLink to="/project/usage" icon={<Gauge size={17} />} label="Usage" />
        <div className={classes.group}>Installation</div>
        <NavLink to="/project/regions" icon={<MapPin size={17} />} label="Regions" />
        <NavLink
          to="/project/repositories"
          icon={<HardDriveUpload size={17} />}
          label="Repositories"
        />
        <a
          className={classes.link}
          href="/public/api/v1/reference/"
          target="_blank"
          rel="noreferrer"
        >
          <Compass size={17} />
          API reference
        </a>
      </nav>
      <div className={classes.foot}>
        <ThemeSwitch />
        <div className={classes.who}>
          <div>
            <div title={name}>{name}</div>
            <div className={classes.muted}>
              {role} of {project.name}
            </div>
          </div>
          <Tooltip label="Log out">
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label="Log out"
              onClick={() => void logout()}
            >
              <LogOut size={17} />
            </ActionIcon>
          </Tooltip>
        </div>
      </div>
    </>
  );
}

function NavLink({ to, icon, label }: { to: string; icon: ReactNode; label: string }) {
  return (
    <Link to={to} className={classes.link}>
      {icon}
      {label}
    </Link>
  );
}

const SCHEMES: { value: MantineColorScheme; icon: ReactNode; label: string }[] = [
  { value: 'light', icon: <Sun size={15} aria-hidden />, label: 'Light theme' },
  { value: 'auto', icon: <Monitor size={15} aria-hidden />, label: 'Theme of the system' },
  { value: 'dark', icon: <Moon size={15} aria-hidden />, label: 'Dark theme' },
];

function ThemeSwitch() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <SegmentedControl<MantineColorScheme>
      size="xs"
      fullWidth
      aria-label="Theme"
      value={colorScheme}
      onChange={setColorScheme}
      data={SCHEMES.map(({ value, icon, label }) => ({
        value,
        label: (
          <span title={label} style={{ display: 'grid', placeItems: 'center', height: 18 }}>
            {icon}
            <span className="visually-hidden">{label}</span>
          </span>
        ),
      }))}
    />
  );
}

export function Centered({ children }: { children: ReactNode }) {
  return (
    <main className={classes.login}>
      <div className={classes.loginBox}>{children}</div>
    </main>
  );
}

export function NotFound() {
  return (
    <Centered>
      <title>Page not found · Howdah</title>
      <Card>
        <Empty
          icon={Compass}
          title="Page not found"
          action={
            <ButtonLink to="/services" mt="xs">
              All services
            </ButtonLink>
          }
        >
          The console has no page at this address.
        </Empty>
      </Card>
    </Centered>
  );
}

/** Shown when a page throws, which is a defect of the console. */
export function Crashed({ error }: { error: unknown }) {
  const router = useRouter();
  return (
    <Card title="This page failed">
      <ErrorNotice error={error} />
      <Button mt="md" onClick={() => void router.invalidate()}>
        Try again
      </Button>
    </Card>
  );
}
