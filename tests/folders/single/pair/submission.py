def custom_kernel(data):
    values, room = data
    assert values.stride() == (1, values.shape[0]), values.stride()
    room.copy_(values.sort(dim=1)[0])
    values.fill_(7)
    return {"sorted": room, "places": [room.argsort(1), None]}
