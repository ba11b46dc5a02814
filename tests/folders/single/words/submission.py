def custom_kernel(data):
    product = data["data"].clone()
    for _ in range(data["power"] - 1):
        product *= data["data"]
    return product.sum(1 if data["how"] == "rows" else 0)
