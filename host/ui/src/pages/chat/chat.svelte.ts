// The open conversation: its events, and the run that answers the last message. It outlives its page. A run outlives the
// conversation: it is followed again when its session is opened again.

import { hostEvents } from "../../app/host-events.svelte";
import { retryWhenBack } from "../../app/retry";
import { cancelRun, createSession, findUnfinishedRun, followRun, forkSession, isInterrupted, isSameSession, readSession, run, type SessionKey, type StreamRequest } from "../../api/host";
import { describeError, type ErrorReport, reportError } from "../../api/http";
import type { JsonObject, Part, SessionEvent } from "../../api/types";
import { buildTurns, openConfirmations, titledState } from "../../model/conversation";
import { EventLog, localMessage } from "../../model/event-log";
import { Latest } from "../../model/latest";
import { newRunId } from "../../model/run-id";
import { draftOf, drafts } from "./drafts.svelte";
import { continuation, watchInterruption } from "./interruption";
import { reconnect } from "./reconnect";

/** The session is read once for events that arrive together. */
const BATCH_MS = 50;

class Chat {
  key = $state.raw<SessionKey>();
  log = $state.raw(EventLog.of([]));
  state = $state.raw<JsonObject>({});
  error = $state.raw<ErrorReport>();
  loadError = $state<string>();
  isLoading = $state(false);
  isRunning = $state(false);
  /** Whether the session of a first message is being created. */
  isCreating = $state(false);
  isReconnecting = $state(false);
  /** Whether the cancellation of the run was requested. */
  isStopping = $state(false);
  /** The id of the newest run, if it was interrupted. */
  interrupted = $state<string>();
  /** Increases when the list of sessions has to be read again. */
  revision = $state(0);
  /** The time of the last event before a live turn. */
  #liveSince: number | undefined;
  #abort: AbortController | undefined;
  /** The id of the run; undefined until the host has accepted its request. */
  #runId: string | undefined;
  #loads = new Latest();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    // Other pages, clients and the tray run the session, too.
    hostEvents.listen((event) => {
      if (event.kind !== "runEnded" || !this.isOpen(event)) return;
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#update(), BATCH_MS);
    });
  }

  turns = $derived(buildTurns(this.log.events));
  confirmations = $derived(openConfirmations(this.turns));

  get isBusy(): boolean {
    return this.isRunning || this.isCreating;
  }

  isOpen(key: SessionKey): boolean {
    return isSameSession(this.key, key);
  }

  async open(key: SessionKey): Promise<void> {
    if (this.isOpen(key)) return;
    this.#reset(key);
    await this.#load(key);
  }

  /** Reads the open session; repeats that while the host cannot be reached. */
  async #load(key: SessionKey): Promise<void> {
    const isLast = this.#loads.begin();
    this.isLoading = true;
    try {
      const session = await readSession(key);
      if (!isLast()) return;
      this.log = EventLog.of(session.events);
      this.state = session.state;
      this.loadError = undefined;
      void this.#attach(key, isLast);
    } catch (error) {
      if (!isLast()) return;
      this.loadError = describeError(error);
      // A run shows its events itself.
      retryWhenBack(error, isLast, () => void this.#load(key), () => this.isBusy);
    } finally {
      if (isLast()) this.isLoading = false;
    }
  }

  /** Follows the active runs of the session, of this or another page, one after the other. Finds an interrupted one. */
  async #attach(key: SessionKey, isLast: () => boolean): Promise<void> {
    for (;;) {
      // A host whose sessions have no runs answers with an error.
      const found = await findUnfinishedRun(key).catch(() => undefined);
      if (!found || !isLast() || this.isBusy || this.#liveSince !== undefined) return;
      if (isInterrupted(found)) return void (this.interrupted = found.id);
      const after = this.log.events.length;
      const hasEnded = await this.#show(key, (request) => followRun({ ...request, runId: found.id }, after), found.id);
      if (!hasEnded) return;
    }
  }

  /** Adds what others have stored in the open session. An own run does that when it ends. */
  #update(): void {
    const key = this.key;
    if (!key || this.isBusy || this.#liveSince !== undefined || this.loadError !== undefined) return;
    void (this.isLoading ? this.#load(key) : this.#reconcile(key, this.log.lastStored));
  }

  close(): void {
    this.#reset(undefined);
  }

  #reset(key: SessionKey | undefined): void {
    // A request that the host has not accepted yet goes on, so that its message arrives.
    if (this.#runId !== undefined) this.#abort?.abort();
    [this.#abort, this.#runId] = [undefined, undefined];
    clearTimeout(this.#timer);
    this.#loads.end();
    this.key = key;
    this.log = EventLog.of([]);
    this.state = {};
    [this.error, this.loadError, this.interrupted] = [undefined, undefined, undefined];
    [this.isLoading, this.isRunning, this.isReconnecting, this.isStopping] = [false, false, false, false];
  }

  /** Creates a session with the title of its first message and opens it. */
  async create(app: string, user: string, message: string): Promise<SessionKey> {
    this.isCreating = true;
    try {
      const session = await createSession(app, user, titledState(message));
      const key = { app, user, session: session.id };
      this.#reset(key);
      this.revision += 1;
      return key;
    } catch (error) {
      this.isCreating = false;
      throw error;
    }
  }

  /**
   * Sends a message and shows the events until the run ends. `shown` is displayed instead of a message with secrets.
   * Returns whether the host has accepted the message.
   */
  async send(parts: Part[], streaming: boolean, shown = parts): Promise<boolean> {
    const key = this.key;
    if (!key || this.isRunning) return false;
    let isAccepted = false;
    this.log = this.log.add(localMessage(shown, Date.now() / 1000));
    const runId = newRunId();
    await this.#show(key, (request) =>
      run({ ...request, runId, parts, streaming, onAccepted: (id) => ((isAccepted = true), request.onAccepted(id)) }),
    );
    return isAccepted;
  }

  /** Continues the interrupted run. */
  async resume(): Promise<void> {
    const [key, runId] = [this.key, this.interrupted];
    if (!key || runId === undefined || this.isBusy) return;
    await this.#show(key, continuation(runId, this.log.events.length), runId);
  }

  /**
   * Shows the events of a run until it ends, and then what the host has stored. `read` reads the events; it calls
   * `onAccepted` with the id of the run, which may be unknown before. Returns whether the run has ended without an error, as
   * far as the page has read.
   */
  async #show(
    key: SessionKey,
    read: (request: StreamRequest) => AsyncGenerator<SessionEvent>,
    runId?: string,
  ): Promise<boolean> {
    const abort = new AbortController();
    const since = this.log.lastStored;
    [this.#abort, this.#runId] = [abort, runId];
    [this.isRunning, this.isStopping, this.isCreating] = [true, false, false];
    [this.error, this.interrupted] = [undefined, undefined];
    const isShown = () => this.#abort === abort;
    // A request that is repeated while the page reconnects may continue the run.
    const watched = () => (isShown() && !this.isReconnecting ? this.#runId : undefined);
    const endWatch = watchInterruption(key, watched, (id) => ((this.interrupted = id), abort.abort()));
    const onAccepted = (id: string) => {
      // Another session was opened meanwhile.
      if (!isShown()) return abort.abort();
      // A stream that is opened again begins with the messages that are not complete.
      if (this.isReconnecting) this.log = this.log.withoutPartial();
      [this.#runId, this.isReconnecting] = [id, false];
      if (this.isStopping) void this.#cancel(key, abort, id);
    };
    try {
      const isWanted = () => isShown() && !abort.signal.aborted && !(this.isStopping && this.#runId === undefined);
      const open = () => read({ key, signal: abort.signal, onAccepted });
      for await (const event of reconnect(open, isWanted, () => (this.isReconnecting = true))) {
        if (!isShown()) break;
        this.#add(event);
      }
    } catch (error) {
      if (isShown() && !abort.signal.aborted && !this.isStopping) this.error = reportError(error);
    } finally {
      endWatch();
    }
    if (!isShown()) return false;
    await this.#reconcile(key, since);
    if (!isShown()) return false;
    [this.#abort, this.#runId] = [undefined, undefined];
    [this.isRunning, this.isReconnecting, this.isStopping] = [false, false, false];
    this.revision += 1;
    return this.error === undefined && !abort.signal.aborted;
  }

  /** Opens a copy of the session up to one of its messages, and sends the original or an edited message there. */
  async resend(eventId: string, parts: Part[], streaming: boolean): Promise<SessionKey | undefined> {
    const key = this.key;
    if (!key || this.isBusy) return undefined;
    this.isCreating = true;
    this.error = undefined;
    try {
      const { events } = await readSession(key);
      const revision = events.findIndex((event) => event.id === eventId);
      if (revision === -1) throw new Error("The host has not stored this message yet.");
      const fork = await forkSession(key, revision);
      await this.open(fork);
      this.revision += 1;
      void this.send(parts, streaming).then((isAccepted) => {
        if (!isAccepted) drafts.restore(fork, draftOf(parts));
      });
      return fork;
    } catch (error) {
      this.error = reportError(error);
      return undefined;
    } finally {
      this.isCreating = false;
    }
  }

  /** Shows a message that a live conversation has sent. */
  addLocal(parts: Part[]): void {
    [this.error, this.isCreating] = [undefined, false];
    this.#liveSince ??= this.log.lastStored ?? 0;
    this.log = this.log.add(localMessage(parts, Date.now() / 1000));
  }

  /** Shows an event of a live conversation. */
  receive(event: SessionEvent): void {
    this.#liveSince ??= this.log.lastStored ?? 0;
    this.#add(event);
  }

  #add(event: SessionEvent): void {
    this.log = this.log.add(event);
    const delta = event.partial ? undefined : event.actions?.stateDelta;
    if (delta) this.state = { ...this.state, ...delta };
  }

  /** Replaces the events that a live conversation has shown by the stored ones. */
  async reconcile(): Promise<void> {
    const since = this.#liveSince;
    if (!this.key) return;
    this.#liveSince = undefined;
    await this.#reconcile(this.key, since);
    [this.isCreating, this.revision] = [false, this.revision + 1];
  }

  /** Cancels the run at the host. A run that the host has not accepted yet is cancelled as soon as it has. */
  async stop(): Promise<void> {
    const [key, abort, runId] = [this.key, this.#abort, this.#runId];
    if (!key || !abort || !this.isRunning || this.isStopping) return;
    this.isStopping = true;
    if (runId !== undefined) await this.#cancel(key, abort, runId);
    else if (this.isReconnecting) abort.abort();
  }

  /** Cancels a run. Its stream then ends, unless the host does not react: then the page stops reading. */
  async #cancel(key: SessionKey, abort: AbortController, runId: string): Promise<void> {
    const hasEnded = await cancelRun(key, runId).catch(() => false);
    if (!hasEnded) abort.abort();
  }

  /** Replaces the shown events by those that the host has stored. */
  async #reconcile(key: SessionKey, since: number | undefined): Promise<void> {
    const asked = this.log;
    try {
      const session = await readSession(key, since);
      if (!this.isOpen(key)) return;
      this.log = this.log.merge(session.events, asked);
      this.state = session.state;
    } catch {
      // The events of the stream stay on the page.
    }
  }
}

export const chat = new Chat();
