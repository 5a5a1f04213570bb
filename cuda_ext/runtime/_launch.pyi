def launch(
    entry: bytes,
    function: int,
    gx: int,
    gy: int,
    gz: int,
    bx: int,
    by: int,
    bz: int,
    shared: int,
    stream: int,
    /,
    *arguments: object,
) -> int: ...
def launch_configured(entry: bytes, function: int, config: int, /, *arguments: object) -> int: ...
