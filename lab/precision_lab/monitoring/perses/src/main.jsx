import '@fontsource/lato/400.css';
import '@fontsource/lato/700.css';
import { CssBaseline, ThemeProvider } from '@mui/material';
import { ChartsProvider, SnackbarProvider, generateChartsTheme, getTheme } from '@perses-dev/components';
import { ViewDashboard } from '@perses-dev/dashboards';
import * as panelPlugins from '@perses-dev/panels-plugin';
import panelResource from '@perses-dev/panels-plugin/plugin.json';
import { PluginRegistry, dynamicImportPluginLoader } from '@perses-dev/plugin-system';
import * as prometheusPlugins from '@perses-dev/prometheus-plugin';
import prometheusResource from '@perses-dev/prometheus-plugin/plugin.json';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router-dom';
import { QueryParamProvider } from 'use-query-params';
import { ReactRouter6Adapter } from 'use-query-params/adapters/react-router-6';

// One page draws one dashboard: index.html?dashboard=NAME reads dashboards/NAME.json, and each query goes to the path
// `prometheus` of the same server. The datasource is ours, so a dashboard names none.
// `note` stands beside its title: where the data are made up, the page says so.
const asked = new URLSearchParams(window.location.search);
const name = asked.get('dashboard');
const note = asked.get('note') ?? '';

const datasource = {
  kind: 'GlobalDatasource',
  metadata: { name: 'prometheus' },
  spec: {
    default: true,
    plugin: {
      kind: 'PrometheusDatasource',
      spec: { directUrl: new URL('prometheus', window.location.href).href, scrapeInterval: '1m' },
    },
  },
};

const datasources = {
  getDatasource: () => Promise.resolve(undefined),
  getGlobalDatasource: () => Promise.resolve(datasource),
  listDatasources: () => Promise.resolve([]),
  listGlobalDatasources: () => Promise.resolve([datasource]),
};

const plugins = dynamicImportPluginLoader([
  { resource: panelResource, importPlugin: () => Promise.resolve(panelPlugins) },
  { resource: prometheusResource, importPlugin: () => Promise.resolve(prometheusPlugins) },
]);

const defaultPlugins = { Panel: 'TimeSeriesChart', TimeSeriesQuery: 'PrometheusTimeSeriesQuery' };

const theme = getTheme('light');
const chartsTheme = generateChartsTheme(theme, {});
const queries = new QueryClient({ defaultOptions: { queries: { refetchOnWindowFocus: false, retry: 1 } } });

function Title({ text }) {
  return (
    <h2 style={{ margin: 0 }}>
      {text} <small style={{ fontWeight: 'normal', color: '#b45309', marginLeft: '1em' }}>{note}</small>
    </h2>
  );
}

function App({ resource }) {
  return (
    <BrowserRouter>
      <QueryParamProvider adapter={ReactRouter6Adapter}>
        <ThemeProvider theme={theme}>
          <ChartsProvider chartsTheme={chartsTheme} enablePinning={false}>
            <CssBaseline />
            <SnackbarProvider>
              <PluginRegistry pluginLoader={plugins} defaultPluginKinds={defaultPlugins}>
                <QueryClientProvider client={queries}>
                  <ViewDashboard
                    dashboardResource={resource}
                    datasourceApi={datasources}
                    dashboardTitleComponent={<Title text={resource.spec.display.name} />}
                    isReadonly
                  />
                </QueryClientProvider>
              </PluginRegistry>
            </SnackbarProvider>
          </ChartsProvider>
        </ThemeProvider>
      </QueryParamProvider>
    </BrowserRouter>
  );
}

const answer = await fetch(`dashboards/${name}.json`);
createRoot(document.getElementById('root')).render(<App resource={await answer.json()} />);
