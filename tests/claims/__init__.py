"""A campaign that tries to refute what ``guarantee()`` says.

Settings of loops and drop-ins are drawn at random over everything that they accept. For each,
functions and noise are built that meet every stated assumption at its edge, and adversaries do
whatever the assumptions leave open. What is counted is how often a statement fails.

Run it in a clone with ``python tests/benchmarks claims``; nothing here is installed.
"""
