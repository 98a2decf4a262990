import { mount } from "svelte";
import App from "./app/App.svelte";
import { handOver } from "./app/redirect";
import Redirected from "./app/Redirected.svelte";
import "./style.css";

const target = document.getElementById("app");
if (target) mount(handOver() ? Redirected : App, { target });
