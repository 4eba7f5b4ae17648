"""A sampler in plain Python: sets, lists and integers, one vertex after the other."""

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _key(seed, epoch, batch):
    z = 0
    for each in (seed, epoch, batch):
        z = _mix((z + each + _GOLDEN) & _MASK)
    return z


def _below(state, n, most):
    return ((_mix((state + n * _GOLDEN) & _MASK) >> 32) * most) >> 32


def picks(key, vertex, degree, fanout):
    """Which of a vertex's edges are drawn, by place."""
    if fanout == -1 or degree <= fanout:
        return list(range(degree))
    state, found = _mix((key + vertex * _GOLDEN) & _MASK), []
    if fanout <= 48:
        for n in range(fanout):
            last = degree - fanout + n
            drawn = _below(state, n + 1, last + 1)
            found.append(last if drawn in found else drawn)
        return found
    for n in range(degree):
        if len(found) < fanout and _below(state, n + 1, degree - n) < fanout - len(found):
            found.append(n)
    return found


def naive_sample(graph, fanouts, batch, seed, epoch, number):
    """(vertices, sizes, {vertex: sorted [(source, place)]}), all in the graph's numbers."""
    key = _key(seed, epoch, number)
    vertices, edges, frontier = list(batch), {}, list(batch)
    sizes = [len(vertices)]
    for fanout in fanouts:
        new = []
        for vertex in frontier:
            first, last = graph.indptr[vertex], graph.indptr[vertex + 1]
            places = [int(first) + each for each in picks(key, int(vertex), int(last - first), fanout)]
            edges[vertex] = sorted((int(graph.indices[place]), place) for place in places)
            for place in places:
                source = int(graph.indices[place])
                if source not in vertices and source not in new:
                    new.append(source)
        vertices, frontier = vertices + new, new
        sizes.append(len(vertices))
    return vertices, tuple(sizes), edges
