"""A crash simulator: a world of files, a script of what befalls a process, and a process that can die at any effect.

    world = World()                                     # files, a catalog's pointer, the clock
    Engine(world).create(format_version=2)              # another engine at work on an Iceberg table
    trial = Process(world=world.copy(), verb="expire-snapshots")
    trial.run()
    for number, effect in enumerate(trial.effects):     # a put, a deletion, a swap
        here = world.copy()
        process = Process(world=here, script=Script(before={number: crash}))
        assert process.dies(process.run)
        Process(world=here).resume()                    # and what must hold of `here` is checked

`world.py` has World, Script and the storage, `catalogs.py` the catalogs, `process.py` the process of either format,
`engine.py` another engine of Iceberg tables; `iceberg_cli.testing.iceberg_reader` and `delta_reader` read what is left,
slowly and by code that is not the package's.
"""
