import { mount } from 'svelte';
import App from './app.svelte';
import { navigation } from './state/navigation.svelte';
import './styles/tokens.css';
import './styles/base.css';

navigation.start(new URLSearchParams(location.search));

const target = document.getElementById('app');
if (target) mount(App, { target });
