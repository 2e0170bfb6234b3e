/** The pages by their addresses. All but the list are loaded when they are first looked at. */
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from '@tanstack/react-router';
import { Crashed, NotFound, Shell } from './shell/Shell.tsx';
import { Services } from './pages/Services.tsx';
import { Waiting } from './components/ui.tsx';

const rootRoute = createRootRoute({ component: Outlet, notFoundComponent: NotFound });
const login = createRoute({
  getParentRoute: () => rootRoute,
  path: '/login',
  component: lazyRouteComponent(() => import('./shell/Login.tsx'), 'Login'),
});
const device = createRoute({
  getParentRoute: () => rootRoute,
  path: '/device',
  component: lazyRouteComponent(() => import('./shell/Device.tsx'), 'Device'),
});
const authorize = createRoute({
  getParentRoute: () => rootRoute,
  path: '/oauth/authorize',
  component: lazyRouteComponent(() => import('./shell/Device.tsx'), 'Authorize'),
});
const authorized = createRoute({
  getParentRoute: () => rootRoute,
  path: '/oauth/code/success',
  component: lazyRouteComponent(() => import('./shell/Device.tsx'), 'Authorized'),
});
const shell = createRoute({ getParentRoute: () => rootRoute, id: 'shell', component: Shell });

const index = createRoute({
  getParentRoute: () => shell,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/services', replace: true });
  },
});
const services = createRoute({
  getParentRoute: () => shell,
  path: '/services',
  component: Services,
});
const create = createRoute({
  getParentRoute: () => shell,
  path: '/create',
  component: lazyRouteComponent(() => import('./pages/Create.tsx'), 'Create'),
});
const fromKit = createRoute({
  getParentRoute: () => shell,
  path: '/create/from-kit',
  component: lazyRouteComponent(() => import('./pages/FromKit.tsx'), 'FromKit'),
});
const regions = createRoute({
  getParentRoute: () => shell,
  path: '/project/regions',
  component: lazyRouteComponent(() => import('./pages/Regions.tsx'), 'Regions'),
});
const deleted = createRoute({
  getParentRoute: () => shell,
  path: '/project/deleted',
  component: lazyRouteComponent(() => import('./pages/Deleted.tsx'), 'Deleted'),
});
const vpcs = createRoute({
  getParentRoute: () => shell,
  path: '/project/vpcs',
  component: lazyRouteComponent(() => import('./pages/Vpcs.tsx'), 'Vpcs'),
});
const keys = createRoute({
  getParentRoute: () => shell,
  path: '/project/keys',
  component: lazyRouteComponent(() => import('./pages/Keys.tsx'), 'Keys'),
});
const allowLists = createRoute({
  getParentRoute: () => shell,
  path: '/project/allow-lists',
  component: lazyRouteComponent(() => import('./pages/AllowLists.tsx'), 'AllowLists'),
});
const leases = createRoute({
  getParentRoute: () => shell,
  path: '/project/leases',
  component: lazyRouteComponent(() => import('./pages/Leases.tsx'), 'Leases'),
});
const exporters = createRoute({
  getParentRoute: () => shell,
  path: '/project/exporters',
  component: lazyRouteComponent(() => import('./pages/Exporters.tsx'), 'Exporters'),
});
const alerts = createRoute({
  getParentRoute: () => shell,
  path: '/project/alerts',
  component: lazyRouteComponent(() => import('./pages/Alerts.tsx'), 'Alerts'),
});
const webhooks = createRoute({
  getParentRoute: () => shell,
  path: '/project/webhooks',
  component: lazyRouteComponent(() => import('./pages/Webhooks.tsx'), 'Webhooks'),
});
const audit = createRoute({
  getParentRoute: () => shell,
  path: '/project/audit',
  component: lazyRouteComponent(() => import('./pages/Audit.tsx'), 'Audit'),
});
const repositories = createRoute({
  getParentRoute: () => shell,
  path: '/project/repositories',
  component: lazyRouteComponent(() => import('./pages/Repositories.tsx'), 'Repositories'),
});
const usage = createRoute({
  getParentRoute: () => shell,
  path: '/project/usage',
  component: lazyRouteComponent(() => import('./pages/Usage.tsx'), 'Usage'),
});

const service = createRoute({
  getParentRoute: () => shell,
  path: '/services/$id',
  component: lazyRouteComponent(() => import('./pages/service/Service.tsx'), 'Service'),
});
const overview = createRoute({
  getParentRoute: () => service,
  path: '/',
  component: lazyRouteComponent(() => import('./pages/service/Overview.tsx'), 'Overview'),
});
const operations = createRoute({
  getParentRoute: () => service,
  path: '/operations',
  component: lazyRouteComponent(() => import('./pages/service/Operations.tsx'), 'Operations'),
});
const metrics = createRoute({
  getParentRoute: () => service,
  path: '/metrics',
  component: lazyRouteComponent(() => import('./pages/service/Metrics.tsx'), 'Metrics'),
});
const logs = createRoute({
  getParentRoute: () => service,
  path: '/logs',
  component: lazyRouteComponent(() => import('./pages/service/Logs.tsx'), 'Logs'),
});
const backups = createRoute({
  getParentRoute: () => service,
  path: '/backups',
  component: lazyRouteComponent(() => import('./pages/service/Backups.tsx'), 'Backups'),
});
const availability = createRoute({
  getParentRoute: () => service,
  path: '/availability',
  component: lazyRouteComponent(() => import('./pages/service/Availability.tsx'), 'Availability'),
});
const pooler = createRoute({
  getParentRoute: () => service,
  path: '/pooler',
  component: lazyRouteComponent(() => import('./pages/service/Pooler.tsx'), 'Pooler'),
});
const extensions = createRoute({
  getParentRoute: () => service,
  path: '/extensions',
  component: lazyRouteComponent(() => import('./pages/service/Extensions.tsx'), 'Extensions'),
});
const network = createRoute({
  getParentRoute: () => service,
  path: '/network',
  component: lazyRouteComponent(() => import('./pages/service/Network.tsx'), 'Network'),
});
const settings = createRoute({
  getParentRoute: () => service,
  path: '/settings',
  component: lazyRouteComponent(() => import('./pages/service/Settings.tsx'), 'Settings'),
});

export const router = createRouter({
  routeTree: rootRoute.addChildren([
    login,
    device,
    authorize,
    authorized,
    shell.addChildren([
      index,
      services,
      create,
      fromKit,
      regions,
      deleted,
      vpcs,
      allowLists,
      leases,
      exporters,
      keys,
      alerts,
      webhooks,
      audit,
      usage,
      repositories,
      service.addChildren([
        overview,
        operations,
        metrics,
        logs,
        backups,
        availability,
        pooler,
        extensions,
        network,
        settings,
      ]),
    ]),
  ]),
  defaultPreload: 'intent',
  scrollRestoration: true,
  defaultPendingComponent: () => <Waiting rows={6} />,
  defaultErrorComponent: Crashed,
  defaultNotFoundComponent: NotFound,
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
