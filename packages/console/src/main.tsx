import './mantine.css';
import '@mantine/notifications/styles.css';
import './styles.css';
// All styles load with the page: they are small, and no page is ever drawn without them.
import './pages/create.module.css';
import './pages/project.module.css';
import './pages/service/service.module.css';
import './pages/service/charts.module.css';
import './pages/service/logs.module.css';
import './pages/service/timeline.module.css';
import './pages/service/availability.module.css';
import 'uplot/dist/uPlot.min.css';
import { MantineProvider, localStorageColorSchemeManager } from '@mantine/core';
import { Notifications } from '@mantine/notifications';
import { QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { setNonce } from 'get-nonce';
import { createRoot } from 'react-dom/client';
import { NameQuestion } from './components/NameQuestion.tsx';
import { queryClient } from './live.ts';
import { router } from './router.tsx';
import { theme } from './theme.ts';

/** The nonce that allows the styles that this page creates. */
const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.nonce ?? '';
setNonce(nonce);

const root = document.querySelector('#root');
if (root === null) throw new Error('index.html has no #root');
createRoot(root).render(
  <MantineProvider
    theme={theme}
    defaultColorScheme="auto"
    colorSchemeManager={localStorageColorSchemeManager({ key: 'howdah-theme' })}
    getStyleNonce={() => nonce}
  >
    <Notifications position="bottom-right" />
    <NameQuestion />
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </MantineProvider>,
);
