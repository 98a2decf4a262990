import base64, contextlib, io, json, os, socket, sys, time, traceback

IDLE_SECONDS, RUN_SECONDS, MAX_BYTES = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
SOCKET = ".hatchery-kernel"
# How often the supervisor looks whether the kernel still runs.
TICK_SECONDS = 0.1


class Output(io.StringIO):
    """A text of at most MAX_BYTES characters. What follows is dropped."""

    def write(self, text):
        room = MAX_BYTES - self.tell()
        super().write(text[: max(room, 0)])
        return len(text)


def files():
    found = {}
    for entry in os.scandir("."):
        if entry.is_file(follow_symlinks=False) and not entry.name.startswith(".hatchery-"):
            status = entry.stat(follow_symlinks=False)
            found[entry.name] = (status.st_mtime_ns, status.st_size)
    return found


def written(before):
    """Returns the files that have changed, as long as they are not too large together."""
    result, dropped, size = [], [], 0
    for name, status in sorted(files().items()):
        if before.get(name) == status:
            continue
        if size + status[1] > MAX_BYTES:
            dropped.append(name)
            continue
        size += status[1]
        with open(name, "rb") as file:
            result.append({"name": name, "content": base64.b64encode(file.read()).decode()})
    return result, dropped


def run(code, names):
    before = files()
    out, err = Output(), Output()
    failed = False
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(compile(code, "<code>", "exec"), names)
        except SystemExit as exit:
            failed = exit.code not in (None, 0)
            if failed:
                print(f"SystemExit: {exit.code}", file=sys.stderr)
        except BaseException as error:
            failed = True
            # The frame of this function says nothing about the code.
            trace = error.__traceback__.tb_next
            traceback.print_exception(type(error), error, trace)
    result, dropped = written(before)
    if dropped:
        failed = True
        err.write(f"Too large to return, all files together: {', '.join(dropped)}\n")
    # Warnings are no failure.
    return {"stdout": out.getvalue(), "stderr": err.getvalue() if failed else "", "files": result}


def serve(supervisor):
    """Runs the code of each connection that the supervisor passes on, until the supervisor has ended."""
    names = {"__name__": "__main__"}
    while True:
        _, connections, _, _ = socket.recv_fds(supervisor, 1, 1)
        if not connections:
            return
        with socket.socket(fileno=connections[0]) as connection, connection.makefile("rwb") as stream:
            code = json.loads(stream.readline())
            stream.write(json.dumps(run(code, names)).encode() + b"\n")
        supervisor.send(b".")


def wait(receive, seconds, kernel):
    """Returns what `receive` returns within the time. The container ends after it, and with its kernel."""
    end = time.monotonic() + seconds
    while True:
        try:
            return receive()
        except socket.timeout:
            pass
        # Processes whose parents have ended are children of the first process.
        ended, _ = os.waitpid(-1, os.WNOHANG)
        while ended not in (0, kernel):
            ended, _ = os.waitpid(-1, os.WNOHANG)
        if ended == kernel or time.monotonic() > end:
            os._exit(1)


def supervise():
    """Is the first process, with which the container ends. It never runs the code itself."""
    own, other = socket.socketpair()
    kernel = os.fork()
    if kernel == 0:
        own.close()
        try:
            serve(other)
        finally:
            # Threads of the code do not keep it running.
            os._exit(1)
    other.close()
    own.settimeout(TICK_SECONDS)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(SOCKET)
        server.listen()
        server.settimeout(TICK_SECONDS)
        while True:
            connection, _ = wait(server.accept, IDLE_SECONDS, kernel)
            with connection:
                socket.send_fds(own, [b"."], [connection.fileno()])
            wait(lambda: own.recv(1), RUN_SECONDS, kernel)


supervise()
