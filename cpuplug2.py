import json, os, pytest, time

P = "/sys/fs/cgroup/cpuacct/flk2/"
open(P + "cgroup.procs", "w").write(str(os.getpid()))
OUT = os.environ["CPU_OUT"]


def use():
    return int(open(P + "cpuacct.usage").read()) / 1e9


START = use()
f = open(OUT, "a")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    a = use()
    w = time.monotonic()
    try:
        return (yield)
    finally:
        f.write(json.dumps([item.nodeid, use() - a, time.monotonic() - w]) + "\n")
        f.flush()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    a = use()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function" and use() - a > 0.2:
            f.write(
                json.dumps(
                    ["FIXTURE " + fixturedef.argname + " " + str(getattr(request.node, "nodeid", "")), use() - a, 0]
                )
                + "\n"
            )


def pytest_collection_finish(session):
    f.write(json.dumps(["COLLECTION " + " ".join(session.config.args)[:80], use() - START, 0]) + "\n")
    f.flush()


def pytest_sessionfinish(session):
    f.write(json.dumps(["TOTAL " + " ".join(session.config.args)[:80], use() - START, 0]) + "\n")
    f.flush()
