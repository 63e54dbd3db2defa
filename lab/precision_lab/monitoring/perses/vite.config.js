import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// Perses' packages read `global`, which browsers don't have.
export default defineConfig({
  plugins: [react()],
  define: { global: 'globalThis' },
  base: './',
  build: { chunkSizeWarningLimit: 10000, sourcemap: false, reportCompressedSize: false, target: "es2022" },
});
